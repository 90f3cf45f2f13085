"""Lattice shifts as single numbers."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Images"]


@dataclass(frozen=True)
class Images:
    """All lattice shifts of at most some cells along each axis, numbered in their order.

    Attributes:
        most: cells along each axis.
        device: where the numbers are wanted.
    """

    most: tuple[int, int, int]
    device: torch.device

    @property
    def count(self) -> int:
        """How many shifts there are."""
        x, y, z = self.most
        return (2 * x + 1) * (2 * y + 1) * (2 * z + 1)

    def step(self, shift: Tensor) -> Tensor:
        """By how much a shift, (M, 3), changes the number of another, (M,), int64."""
        _, y, z = self.most
        a, b, c = shift.to(torch.int64).unbind(1)
        return (a * (2 * y + 1) + b) * (2 * z + 1) + c

    def number(self, shift: Tensor) -> Tensor:
        """Numbers of shifts, (M, 3) -> (M,), int64."""
        return self.step(shift) + self.count // 2

    def vectors(self, cell: Tensor) -> Tensor:
        """Lattice vectors of all shifts for a cell, (3, 3) -> (count, 3), in Å.

        Each is rounded for itself, as it might not be in a matrix product.
        """
        along = [torch.arange(-n, n + 1, device=self.device)[:, None] for n in self.most]
        x, y, z = (number * row for number, row in zip(along, cell, strict=True))
        return (x[:, None, None] + y[:, None] + z).reshape(-1, 3)
