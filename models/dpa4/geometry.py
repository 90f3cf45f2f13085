"""What a block needs to know about each edge besides its features."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from .bridging import clamped_length
from .config import DescriptorConfig
from .harmonics import WignerRows, edge_frame
from .layout import degree_of_row, order_rows
from .linear import constant
from .radial import cutoff_envelope

__all__ = [
    "EdgeGeometry",
    "EdgeRotation",
    "edge_envelope",
    "edge_geometry",
    "inverse_root_degree",
]

# Floor of the smooth degree; files before version 1.1 have the option eps in its place.
_DEGREE_FLOOR = 0.25


@dataclass(frozen=True)
class EdgeGeometry:
    """Scalars and directions of edges in the precision of the model.

    Attributes:
        length: (E,) Å.
        unit: direction from destination to source, (E, 3).
    """

    length: Tensor
    unit: Tensor


def edge_geometry(
    vec: Tensor, config: DescriptorConfig, dtype: torch.dtype
) -> EdgeGeometry:
    """Lengths and directions of edge vectors (E, 3), cast to ``dtype``."""
    vec = vec.to(dtype)
    length = (vec.square().sum(-1) + config.eps**2).sqrt()
    unit = vec / length[:, None]
    if config.bridging is not None:
        length = clamped_length(length, *config.bridging)
    return EdgeGeometry(length, unit)


def edge_envelope(length: Tensor, config: DescriptorConfig) -> Tensor:
    """Smooth cutoff weights of lengths in Å, (E,) -> (E,)."""
    # This envelope's cutoff is rounded to float32 in the format, whatever the precision.
    rcut = length.new_full((), float(np.float32(config.rcut)))
    return cutoff_envelope(length, rcut, config.env_exp[1])


def inverse_root_degree(degree: Tensor, config: DescriptorConfig) -> Tensor:
    """``1 / sqrt(degree + floor)`` of the smooth neighbour count ``sum envelope^2``."""
    floor = _DEGREE_FLOOR if config.version >= 1.1 else config.eps
    return torch.rsqrt(degree + floor)


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
