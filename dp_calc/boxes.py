"""Boxes to search for pairs in."""

import torch
from torch import Tensor

from .structure import Structure

__all__ = ["heights", "search_box"]


def search_box(structure: Structure, reach: float) -> tuple[Tensor, Tensor]:
    """Points (N, 3) in a box (3, 3), periodic along all axes, with the same pairs.

    Along an open axis the box is longer than the points extend by more than the reach, so
    that its images never meet. Gaps longer than the reach are shortened to it first: they
    separate the same atoms, and an atom that flew away needs no gigantic box.
    """
    cell = structure.cell
    fractional = structure.positions @ torch.linalg.inv(cell) - structure.turns
    length = torch.ones_like(cell[:, 0])
    for axis in (~structure.pbc).nonzero().squeeze(1):
        fractional[:, axis] = _shorten_gaps(fractional[:, axis], reach)
        length[axis] = fractional[:, axis].max() + 2 * reach
    return fractional @ cell, cell * length[:, None]


def _shorten_gaps(x: Tensor, reach: float) -> Tensor:
    order = torch.argsort(x)
    gaps = torch.diff(x[order], prepend=x[order[:1]]).clamp(max=reach)
    return torch.empty_like(x).index_copy_(0, order, gaps.cumsum(0))


def heights(cell: Tensor) -> Tensor:
    """Distance between the two faces of the cell that each vector connects, (3,)."""
    return 1 / torch.linalg.inv(cell).norm(dim=0)
