"""Bridging to a ZBL pair potential at short distance.

Below an outer radius distances are compressed towards an inner one, so that the learned
part freezes, and an atom with a frozen neighbour stops sending messages; the screened
nuclear repulsion of Ziegler, Biersack and Littmark is added at all distances.
"""

import torch
from torch import Tensor, nn

from ..edges import EdgeList

__all__ = ["ZBLPotential", "clamped_length", "freeze_gate"]

_COULOMB = 14.3996  # eV Å, as the format has it
_BOHR = 0.5291772109  # Å
_SCREENING = (
    (0.18175, 3.1998),
    (0.50986, 0.94229),
    (0.28022, 0.4029),
    (0.028171, 0.20162),
)


def clamped_length(length: Tensor, inner: float, outer: float) -> Tensor:
    """Length that the learned part sees: frozen below ``inner``, true above ``outer``."""
    t = ((length - inner) / (outer - inner)).clamp(0, 1)
    t4 = t.square().square()
    compressed = inner + (outer - inner) * t4 * (20 + t * (-45 + t * (36 - 10 * t)))
    return torch.where(length >= outer, length, compressed)


def freeze_gate(edges: EdgeList, length: Tensor, inner: float, outer: float) -> Tensor:
    """Product over all edges that leave an atom, lengths (E,) -> (N,).

    Each factor rises from 0 at ``inner`` to 1 at ``outer`` with three zero derivatives at
    both ends. The product is taken by logarithms, with factors of zero counted apart.
    """
    t = ((length - inner) / (outer - inner)).clamp(0, 1)
    t4 = t.square().square()
    switch = t4 * (35 + t * (-84 + t * (70 - 20 * t)))
    positive = switch > 0
    logs = edges.sum_at_src(torch.where(positive, switch, 1).log()[:, None])
    zeros = edges.sum_at_src((~positive).to(length.dtype)[:, None])
    return torch.where(zeros > 0, 0, logs.exp())[:, 0]


class ZBLPotential(nn.Module):
    """Screened nuclear repulsion of the pairs within the cutoff, half to each atom."""

    def __init__(self, ntypes: int, rcut: float, active: Tensor):
        super().__init__()
        self.rcut = rcut
        self.atomic_numbers = nn.Buffer(torch.empty(ntypes, device="meta"))
        self.active = nn.Buffer(active, persistent=False)

    def forward(self, types: Tensor, edges: EdgeList) -> Tensor:
        """Types (N,) and edges with raw vectors -> (N,), float64, eV."""
        r = edges.vec.norm(dim=1).clamp(min=1e-10)
        z = self.atomic_numbers[types]
        z_src, z_dst = z[edges.src], z[edges.dst]
        x = r * (z_src**0.23 + z_dst**0.23) / (0.88534 * _BOHR)
        screening = sum(a * torch.exp(-b * x) for a, b in _SCREENING)
        energy = _COULOMB * z_src * z_dst / r * screening
        # The learned part vanishes at the cutoff, this one does not: it ends there.
        active = self.active[types]
        counted = (r <= self.rcut) * active[edges.src] * active[edges.dst]
        return edges.sum_at_dst((energy * counted)[:, None])[:, 0] / 2
