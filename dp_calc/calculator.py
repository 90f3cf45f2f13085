"""The ASE calculator: convert, evaluate, copy out."""

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

from .arithmetic import plain_arithmetic
from .committee import Committee, members_of
from .copies import SharedModel
from .inspection import Inspection
from .opening import open_potential
from .processes import refuse_fork
from .provenance import Provenance
from .reading import Reader
from .results import collect_results, stress_from_virial
from .settings import Settings
from .structure import why_no_stress
from .timings import Stopwatch

__all__ = ["DP"]


class DP(SharedModel, Provenance, Inspection, Calculator):
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
    ``magnetic_forces`` (N, 3)          eV     ``-dE/dspin``, per unit of spin; only of
                                               models that read spins
    ``energy_std``                      eV     only of committees: standard deviations of
    ``forces_std`` (N, 3)               eV/Å   their models, divided by M and not M - 1
    ==================================  =====  ====================================

    Each axis is periodic or open as ``atoms.pbc`` says; cell vectors of open axes take no
    part in the energy. Stress exists for cells with a volume and at least one periodic
    axis, and is divided by the volume of the cell as given.

    Some models read more than the geometry; ``model.inputs`` lists what. It comes with
    the structure, and any change of it, also in place, leads to a new evaluation:

    * the state of charge and spin: ``atoms.info["charge"]``, the total charge, and
      ``atoms.info["spin"]``, the spin multiplicity 2S + 1; or both as the pair
      ``atoms.info["charge_spin"]``, whose second number is the row of the model's spin
      table. DeePMD-kit counts rows by multiplicity, so both forms mean the same; a model
      trained with another count takes it as ``charge_spin``;
    * a spin vector for each atom, in the model's unit: ``atoms.arrays["spin"]``, (N, 3);
    * frame parameters: ``atoms.info["fparam"]``, (n,);
    * atomic parameters: ``aparam`` in ``atoms.info`` or ``atoms.arrays``, (N, m), or (m,)
      for all atoms alike.

    What a model does not read causes a warning, once. ASE's initial charges and magnetic
    moments are never read. ASE's own sums of calculators keep results, and do not notice
    such changes: make a new one after each.

    Copies share the model, pickles carry it. A calculator that threads share answers one
    after the other, each for the structure it was asked about; ``results`` are those of
    the last.

    Args:
        model: path of a checkpoint, or a model from ``load_model``; a list of them is a
            committee, whose results are means over its models.
        label: name of the calculator; no file is ever written under it.
        type_dict: type index of each element, if not as in the model's type map.
        neighbor_list: object of ``ase.neighborlist`` that finds the pairs; it is updated.
        head: branch of a multi-task checkpoint; of a committee one for all or a list.
        nlist_backend: what finds the pairs otherwise: ``"auto"``, ``"vesin"``, ``"ase"``.
        device: like ``"cpu"`` or ``"cuda:0"``; None is CUDA if available, else the CPU.
        dtype: ``"float32"`` or ``"float64"``; None is the checkpoint's own.
        **settings: fields of :class:`~dp_calc.Settings`.

    Attributes:
        type_map: element symbol of each type, a list.
        rcut: cutoff in Å.
        device: where the model is.
        model: the model itself, of a committee one with ``members``.
        settings: how it is run.
        timings: seconds of each stage of the last evaluation, in order: checks,
            transfer, neighbor list, model and post-processing.

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

    ignored_changes = {"initial_charges", "initial_magmoms"}  # noqa: RUF012 (as ASE has it)

    def __init__(
        self,
        model: str | Path | nn.Module | Sequence[str | Path | nn.Module],
        label: str = "DP",
        type_dict: Mapping[str, int] | None = None,
        neighbor_list: object | None = None,
        head: str | Sequence[str] | None = None,
        nlist_backend: str = "auto",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        **settings: Any,
    ):
        super().__init__(label=label)
        self.settings = Settings.from_keywords(**settings)
        self._hold(open_potential(model, head, device, dtype, self.settings))
        self.type_map = list(self.model.type_map)
        self.rcut = self.model.rcut
        self.device = self.model.device
        self._reader = Reader(
            self.model, type_dict, nlist_backend, neighbor_list, self.settings.skin
        )
        self.implemented_properties = [*self.implemented_properties, *self._further()]
        self._remember(type_dict, nlist_backend)
        self._conditions: dict[str, np.ndarray] = {}
        self._atomic_virials = np.zeros((0, 3, 3))
        self.timings: dict[str, float] = {}

    def _further(self) -> list[str]:
        """Properties that not every model has."""
        spin = ["magnetic_forces"] if "spin" in self._reader.inputs.names else []
        spread = isinstance(self.model, Committee)
        return spin + (["energy_std", "forces_std"] if spread else [])

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
        atoms = self._given(atoms)
        with self._lock:
            if system_changes or not self.results or self.check_state(atoms):
                self._evaluate(atoms)
            if "stress" in properties or "stresses" in properties:
                reason = why_no_stress(atoms)
                if reason:
                    raise PropertyNotImplementedError(reason)
            if "stresses" in properties:
                stresses = stress_from_virial(self._atomic_virials, atoms)
                self.results["stresses"] = stresses

    def get_property(
        self, name: str, atoms: Atoms | None = None, allow_calculation: bool = True
    ) -> Any:
        """Give a result; in a thread, the one of the structure asked about."""
        with self._lock:
            return super().get_property(name, atoms, allow_calculation)

    def check_state(self, atoms: Atoms, tol: float = 1e-15) -> list[str]:
        """List what changed since the last calculation, further inputs included."""
        changed = super().check_state(atoms, tol)
        return changed + self._reader.inputs.changes(atoms, self._conditions)

    def _given(self, atoms: Atoms | None) -> Atoms:
        atoms = self.atoms if atoms is None else atoms
        if atoms is None:
            raise ValueError("there is no structure to calculate; give atoms")
        return atoms

    def _evaluate(self, atoms: Atoms) -> None:
        # An error below must leave no results of an earlier structure behind.
        self.reset()
        self.timings = {}
        refuse_fork(self.device)
        watch = Stopwatch(self.device)
        with plain_arithmetic(self.device):
            system = self._reader.read(atoms, watch.lap)
            outputs = self._engine.evaluate(system.types, system.edges, system.conditions)
            watch.lap("model")
        self.atoms = atoms.copy()
        self.results = collect_results(outputs, atoms)
        conditions = system.conditions.items()
        self._conditions = {name: value.cpu().numpy() for name, value in conditions}
        self._atomic_virials = outputs.atomic_virials.cpu().numpy()
        watch.lap("post-processing")
        self.timings = watch.seconds()

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
        number = len(members_of(self.model))
        many = f"committee of {number} models, " if number > 1 else ""
        return (
            f"DP({many}{self.rcut:g} Å cutoff, {len(self.type_map)} elements: "
            f"{' '.join(self.type_map)}; {precision} on {self.device})"
        )
