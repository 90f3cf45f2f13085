"""One evaluation of a model: energies forward, everything else by one backward pass."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .models import EdgeList
from .settings import Settings

__all__ = ["Engine", "Outputs"]


@dataclass(frozen=True)
class Outputs:
    """Results for one structure, float64, on the model's device.

    Attributes:
        energies: energy of each atom in eV, (N,).
        forces: force on each atom in eV/Å, (N, 3).
        atomic_virials: virial of each atom in eV, rows force and columns coordinate
            component, not symmetrised, (N, 3, 3).
    """

    energies: Tensor
    forces: Tensor
    atomic_virials: Tensor

    @property
    def energy(self) -> Tensor:
        """Total energy in eV, ()."""
        return self.energies.sum()

    @property
    def virial(self) -> Tensor:
        """Virial ``-dE/dstrain`` in eV, (3, 3)."""
        return self.atomic_virials.sum(0)


class Engine:
    """Runs a model as its settings say.

    Args:
        model: gives atomic energies from types and edges.
        settings: how to run it.
    """

    def __init__(self, model: nn.Module, settings: Settings):
        self.model = model
        self.settings = settings

    def evaluate(self, types: Tensor, edges: EdgeList) -> Outputs:
        """Compute energies, forces and virials.

        Args:
            types: index into the model's ``type_map``, (N,), int64, on its device.
            edges: all pairs within the model's cutoff, on its device.

        Raises:
            FloatingPointError: a result is infinite or not a number.
        """
        edges = edges.with_vec(edges.vec.detach().requires_grad_())
        with torch.enable_grad():
            energies = self.model(types, edges)
            gradient = _gradient(energies.sum(), edges.vec)
        outputs = _assemble(energies.detach(), gradient, edges)
        _refuse_non_finite(outputs, self.model, types)
        return outputs


def _gradient(energy: Tensor, vec: Tensor) -> Tensor:
    if vec.shape[0] == 0:
        return torch.zeros_like(vec)
    return torch.autograd.grad(energy, vec)[0]


def _assemble(energies: Tensor, gradient: Tensor, edges: EdgeList) -> Outputs:
    """Forces and virials from ``g = dE/dvec``, (E, 3); every sum in a fixed order.

    An edge pulls its two ends with ``g`` and ``-g``. Its virial ``-g ⊗ vec`` belongs to
    neither of them, so each gets half.
    """
    forces = edges.sum_at_dst(gradient) - edges.sum_at_src(gradient)
    per_edge = -0.5 * gradient.unsqueeze(2) * edges.vec.detach().unsqueeze(1)
    atomic_virials = edges.sum_at_dst(per_edge) + edges.sum_at_src(per_edge)
    return Outputs(energies, forces, atomic_virials)


def _refuse_non_finite(outputs: Outputs, model: nn.Module, types: Tensor) -> None:
    results = {
        "energy": outputs.energies,
        "force": outputs.forces,
        "virial": outputs.atomic_virials,
    }
    for name, values in results.items():
        finite = torch.isfinite(values.reshape(len(types), -1)).all(1)
        if not finite.all():
            atom = int((~finite).nonzero()[0])
            raise FloatingPointError(
                f"the model gave a non-finite {name} for atom {atom} "
                f"({model.type_map[types[atom]]}); the structure is probably far from "
                "anything that the model was trained on"
            )
