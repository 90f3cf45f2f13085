"""One evaluation of a model: energies forward, everything else by one backward pass."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .backward import Backward, choose_backward
from .models import EdgeList
from .placement import ordinary_tensors
from .settings import Settings

__all__ = ["Engine", "Outputs", "plain_arithmetic"]


@dataclass(frozen=True)
class Outputs:
    """Results for one structure, float64, on the model's device.

    Attributes:
        energies: energy of each atom in eV, (N,).
        forces: force on each atom in eV/Å, (N, 3).
        atomic_virials: virial of each atom in eV, rows force and columns coordinate
            component, not symmetrised, (N, 3, 3).
        magnetic_forces: ``-dE/dspin`` of each atom in eV per unit of spin, (N, 3); None
            for models without spins.
    """

    energies: Tensor
    forces: Tensor
    atomic_virials: Tensor
    magnetic_forces: Tensor | None = None

    @property
    def energy(self) -> Tensor:
        """Total energy in eV, ()."""
        return self.energies.sum()

    @property
    def virial(self) -> Tensor:
        """Virial ``-dE/dstrain`` in eV, (3, 3)."""
        return self.atomic_virials.sum(0)


@contextmanager
def plain_arithmetic(device: torch.device) -> Iterator[None]:
    """Shut out modes of the caller that would change numbers or forbid derivatives."""
    with torch.autocast(device.type, enabled=False), ordinary_tensors():
        yield


class Engine:
    """Runs a model as its settings say.

    Args:
        model: gives atomic energies from types, edges and conditions.
        settings: how to run it.
    """

    def __init__(self, model: nn.Module, settings: Settings):
        self.model = model
        self.settings = settings
        self.backward: Backward | None = None  # choice for the last structure

    def evaluate(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor] | None = None,
    ) -> Outputs:
        """Compute energies, forces and virials.

        Args:
            types: index into the model's ``type_map``, (N,), int64, on its device.
            edges: all pairs within the model's cutoff, on its device.
            conditions: further inputs of the model by name, on its device.

        Raises:
            FloatingPointError: a result is infinite or not a number.
        """
        edges = edges.with_vec(edges.vec.detach().requires_grad_())
        conditions = dict(conditions or {})
        leaves = [edges.vec]
        if "spin" in conditions:
            conditions["spin"] = conditions["spin"].detach().requires_grad_()
            leaves.append(conditions["spin"])
        with torch.enable_grad():
            energies = self.model(types, edges, conditions, **self._how(edges))
            gradients = _gradients(energies.sum(), leaves)
        outputs = _assemble(energies.detach(), edges, *gradients)
        _refuse_non_finite(outputs, self.model, types)
        return outputs

    def _how(self, edges: EdgeList) -> dict[str, Any]:
        """Keywords of the model that say what is kept for the backward pass."""
        self.backward = choose_backward(self.model, self.settings, edges)
        if self.backward.name == "native":
            return {}
        return {"executor": self.backward.executor(self.model, self.settings)}


def _gradients(energy: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """``dE/dx`` of each tensor; an empty one may be missing in the energy's graph."""
    filled = [x for x in leaves if x.numel()]
    found = iter(torch.autograd.grad(energy, filled) if filled else ())
    return [next(found) if x.numel() else torch.zeros_like(x) for x in leaves]


def _assemble(
    energies: Tensor, edges: EdgeList, gradient: Tensor, by_spin: Tensor | None = None
) -> Outputs:
    """Forces and virials from ``g = dE/dvec``, (E, 3); every sum in a fixed order.

    An edge pulls its two ends with ``g`` and ``-g``. Its virial ``-g ⊗ vec`` belongs to
    neither of them, so each gets half.
    """
    forces = edges.sum_at_dst(gradient) - edges.sum_at_src(gradient)
    per_edge = -0.5 * gradient.unsqueeze(2) * edges.vec.detach().unsqueeze(1)
    atomic_virials = edges.sum_at_dst(per_edge) + edges.sum_at_src(per_edge)
    magnetic_forces = None if by_spin is None else -by_spin
    return Outputs(energies, forces, atomic_virials, magnetic_forces)


def _refuse_non_finite(outputs: Outputs, model: nn.Module, types: Tensor) -> None:
    results = {
        "energy": outputs.energies,
        "force": outputs.forces,
        "virial": outputs.atomic_virials,
    }
    if outputs.magnetic_forces is not None:
        results["magnetic force"] = outputs.magnetic_forces
    for name, values in results.items():
        finite = torch.isfinite(values.reshape(len(types), -1)).all(1)
        if not finite.all():
            atom = int((~finite).nonzero()[0])
            raise FloatingPointError(
                f"the model gave a non-finite {name} for atom {atom} "
                f"({model.type_map[types[atom]]}); the structure is probably far from "
                "anything that the model was trained on"
            )
