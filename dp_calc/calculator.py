"""The ASE calculator: convert, evaluate, copy out."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.calculators.calculator import (
    Calculator,
    PropertyNotImplementedError,
    all_changes,
)
from ase.outputs import Properties, all_outputs
from torch import nn

from .engine import Engine, Outputs
from .neighbors import EdgeBuilder
from .placement import open_model
from .settings import Settings
from .structure import Structure, element_types, why_no_stress

__all__ = ["DP"]


class DP(Calculator):
    """ASE calculator for a DPA4 checkpoint.

    One evaluation gives all results, as a float or as float64 arrays:

    ==================================  =====  ====================================
    ``energy``, ``free_energy``         eV     the same number
    ``energies`` (N,)                   eV     sum to ``energy``
    ``forces`` (N, 3)                   eV/Å
    ``virial`` (3, 3)                   eV     ``-dE/dstrain``, not symmetrised; rows
                                               force, columns coordinate component
    ``stress`` (6,)                     eV/Å³  ``-(virial + virial.T) / 2 / volume``,
                                               tension positive, xx yy zz yz xz xy
    ``stresses`` (N, 6)                 eV/Å³  on request; sum to ``stress``
    ==================================  =====  ====================================

    Each axis is periodic or open as ``atoms.pbc`` says; cell vectors of open axes take no
    part in the energy. Stress exists for cells with a volume and at least one periodic
    axis, and is divided by the volume of the cell as given.

    Args:
        model: path of a checkpoint, or a model from ``load_model``.
        label: name of the calculator; no file is ever written under it.
        type_dict: type index of each element, if not as in the model's type map.
        neighbor_list: object of ``ase.neighborlist`` that finds the pairs; it is updated.
        head: branch of a multi-task checkpoint.
        nlist_backend: what finds the pairs otherwise: ``"auto"``, ``"vesin"``, ``"ase"``.
        device: like ``"cpu"`` or ``"cuda:0"``; None is CUDA if available, else the CPU.
        dtype: ``"float32"`` or ``"float64"``; None is the checkpoint's own.
        **settings: fields of :class:`~dp_calc.Settings`.

    Attributes:
        type_map: element symbol of each type, a list.
        rcut: cutoff in Å.
        device: where the model is.
        model: the model itself.
        settings: how it is run.

    Raises:
        TypeError: a keyword is no field of ``Settings``, or an object of the wrong kind.
        ValueError: an argument cannot be honoured; the message says why.
    """

    implemented_properties = [  # noqa: RUF012 (ASE reads this list from the class)
        "energy",
        "free_energy",
        "energies",
        "forces",
        "virial",
        "stress",
        "stresses",
    ]

    def __init__(
        self,
        model: str | Path | nn.Module,
        label: str = "DP",
        type_dict: Mapping[str, int] | None = None,
        neighbor_list: object | None = None,
        head: str | None = None,
        nlist_backend: str = "auto",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        **settings: Any,
    ):
        super().__init__(label=label)
        self.settings = Settings.from_keywords(**settings)
        self.model = open_model(model, head, device, dtype)
        self.type_map = list(self.model.type_map)
        self.rcut = self.model.rcut
        self.device = self.model.device
        self._types = element_types(self.model.type_map, type_dict)
        self._edges = EdgeBuilder(
            self.rcut,
            self.model.shortest_distance,
            self.device,
            nlist_backend,
            neighbor_list,
        )
        self._engine = Engine(self.model, self.settings)
        self._atomic_virials: np.ndarray | None = None
        self._has_warned = False

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = all_changes,
    ) -> None:
        """Fill ``results`` for a structure.

        The model is evaluated once for all properties; asking for ``stresses`` afterwards
        does not evaluate it again.

        Args:
            atoms: the structure; None is the one of the last calculation.
            properties: names that must be there in the end.
            system_changes: what changed since then; empty means nothing.

        Raises:
            ValueError: the structure cannot be evaluated; the message says why.
            FloatingPointError: the model gave an infinite result or none.
            PropertyNotImplementedError: a stress was asked for where there is none. All
                other results are there.
        """
        atoms = self.atoms if atoms is None else atoms
        if atoms is None:
            raise ValueError("there is no structure to calculate; give atoms")
        if system_changes or not self.results or self.check_state(atoms):
            self._evaluate(atoms)
        if "stress" in properties or "stresses" in properties:
            reason = why_no_stress(atoms)
            if reason:
                raise PropertyNotImplementedError(reason)
        if "stresses" in properties:
            self.results["stresses"] = _stress(self._atomic_virials, atoms)

    def _evaluate(self, atoms: Atoms) -> None:
        # An error below must leave no results of an earlier structure behind.
        self.reset()
        # The backward pass keeps its inputs, which it may not within inference mode.
        with torch.inference_mode(False):
            structure = Structure.from_atoms(atoms, self._types)
            self._warn_unobserved(structure)
            edges = self._edges.build(structure)
            outputs = self._engine.evaluate(structure.types.to(self.device), edges)
        self.atoms = atoms.copy()
        self.results = _results(outputs, atoms)
        self._atomic_virials = outputs.atomic_virials.cpu().numpy()

    def _warn_unobserved(self, structure: Structure) -> None:
        source = getattr(self.model, "source", None)
        if self._has_warned or source is None or source.observed_types is None:
            return
        present = {self.type_map[t] for t in structure.types.unique().tolist()}
        unseen = sorted(present - set(source.observed_types))
        if unseen:
            self._has_warned = True
            warnings.warn(
                f"the model was never trained on {', '.join(unseen)}; results for it are "
                "not to be trusted",
                stacklevel=2,
            )

    def set(self, **keywords: Any) -> dict:
        """Refuse changes: a calculator is what it was made as.

        Raises:
            TypeError: any keyword is given.
        """
        if keywords:
            raise TypeError(
                f"{', '.join(keywords)} cannot be changed any more; make a new DP with it"
            )
        return {}

    def export_properties(self) -> Properties:
        """Give the results that ASE has a name for, in its own container."""
        known = {k: v for k, v in self.results.items() if k in all_outputs}
        return Properties(known)

    def __repr__(self) -> str:
        precision = str(self.model.dtype).removeprefix("torch.")
        return (
            f"DP({self.rcut:g} Å cutoff, {len(self.type_map)} elements: "
            f"{' '.join(self.type_map)}; {precision} on {self.device})"
        )


def _results(outputs: Outputs, atoms: Atoms) -> dict[str, Any]:
    energy = outputs.energy.item()
    results = {
        "energy": energy,
        "free_energy": energy,
        "energies": outputs.energies.cpu().numpy(),
        "forces": outputs.forces.cpu().numpy(),
        "virial": outputs.virial.cpu().numpy(),
    }
    if why_no_stress(atoms) is None:
        results["stress"] = _stress(results["virial"], atoms)
    return results


def _stress(virial: np.ndarray, atoms: Atoms) -> np.ndarray:
    """Stress in ASE's sign and Voigt order from virials, (..., 3, 3) -> (..., 6)."""
    symmetric = (virial + np.swapaxes(virial, -1, -2)) / 2
    return -symmetric[..., [0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]] / atoms.get_volume()
