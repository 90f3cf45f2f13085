"""What a block needs to know about each edge besides its features."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ..edges import EdgeList
from .bridging import clamped_length, freeze_gate
from .config import DescriptorConfig
from .harmonics import WignerRows, edge_frame
from .layout import degree_of_row, order_rows
from .linear import constant
from .radial import cutoff_envelope

__all__ = ["EdgeGeometry", "EdgeRotation", "edge_geometry"]

# Floor of the smooth degree; files before version 1.1 have the option eps in its place.
_DEGREE_FLOOR = 0.25


@dataclass(frozen=True)
class EdgeGeometry:
    """Scalars and directions of the edges in the precision of the model.

    Attributes:
        edges: topology, with the fixed-order sums.
        length: (E,) Å.
        unit: direction from destination to source, (E, 3).
        envelope: smooth cutoff weight, (E,).
        inv_sqrt_degree: per atom, (N,): one over the root of the smooth neighbour count.
        source_gate: factor on what an edge's source sends, (E,); None without bridging.
    """

    edges: EdgeList
    length: Tensor
    unit: Tensor
    envelope: Tensor
    inv_sqrt_degree: Tensor
    source_gate: Tensor | None = None


def edge_geometry(edges: EdgeList, config: DescriptorConfig, dtype: torch.dtype):
    """Derive lengths, directions and envelope from ``edges.vec``, cast to ``dtype``."""
    vec = edges.vec.to(dtype)
    length = (vec.square().sum(-1) + config.eps**2).sqrt()
    unit, source_gate = vec / length[:, None], None
    if config.bridging is not None:
        length = clamped_length(length, *config.bridging)
        source_gate = freeze_gate(edges, length, *config.bridging)
    # This envelope's cutoff is rounded to float32 in the format, whatever the precision.
    rcut = torch.tensor(config.rcut, dtype=torch.float32).to(vec)
    envelope = cutoff_envelope(length, rcut, config.env_exp[1])
    floor = _DEGREE_FLOOR if config.version >= 1.1 else config.eps
    degree = edges.sum_at_dst(envelope.square())
    return EdgeGeometry(
        edges=edges,
        length=length,
        unit=unit,
        envelope=envelope,
        inv_sqrt_degree=torch.rsqrt(degree + floor),
        source_gate=source_gate,
    )


class EdgeRotation(nn.Module):
    """Rotation into the frame of each edge, orders |m| <= mmax only."""

    def __init__(self, lmax: int, mmax: int):
        super().__init__()
        self.wigner = WignerRows(lmax, mmax)
        degree = degree_of_row(lmax)
        rows = [order_rows(lmax, m) for m in range(mmax + 1)]
        self.sizes = [len(r) for r in rows]
        signed = [
            np.sign(degree[r] ** 2 + degree[r] - r) * -m for m, r in enumerate(rows)
        ]
        self.row_of_order = (mmax + np.concatenate(signed)).tolist()
        rows = np.concatenate(rows)
        self.same_degree = constant(degree[rows][:, None] == degree[None, :])

    def forward(self, unit: Tensor) -> list[Tensor]:
        """Directions (E, 3) -> one (E, n, D) per order, rows as in ``order_rows``."""
        rows = self.wigner(edge_frame(unit))[:, self.row_of_order]
        return list((rows * self.same_degree).split(self.sizes, dim=1))
