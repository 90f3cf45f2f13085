"""From a model to results: energies forward, everything else by one backward pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .models import EdgeList
from .models.dpa4.descriptor import MakeExecutor

__all__ = ["Outputs", "evaluate_model"]


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


def evaluate_model(
    model: nn.Module,
    types: Tensor,
    edges: EdgeList,
    conditions: Mapping[str, Tensor],
    executor: MakeExecutor | None = None,
) -> Outputs:
    """Compute energies, forces and virials.

    Args:
        model: gives atomic energies from types, edges and conditions.
        types: index into the model's ``type_map``, (N,), int64, on its device.
        edges: all pairs within the model's cutoff, on its device.
        conditions: further inputs of the model by name, on its device.
        executor: how edges and atoms are gone over; None keeps all for the backward pass.
    """
    edges = edges.with_vec(edges.vec.detach().requires_grad_())
    conditions = dict(conditions)
    leaves = [edges.vec]
    if "spin" in conditions:
        conditions["spin"] = conditions["spin"].detach().requires_grad_()
        leaves.append(conditions["spin"])
    how = {} if executor is None else {"executor": executor}
    with torch.enable_grad():
        energies = model(types, edges, conditions, **how)
        gradients = _gradients(energies.sum(), leaves)
    return _assemble(energies.detach(), edges, *gradients)


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
