"""Edges laid out as one row of neighbours per atom, for batched products."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Slots"]


@dataclass(frozen=True)
class Slots:
    """A rectangle of atoms and neighbours; unused places hold zeros.

    Attributes:
        edges: edges in the rectangle, (e,), or None: all.
        atoms: atoms of its rows, (n,), or None: all.
        place: flat place of each edge, (e,).
        n_rows: number of atoms n.
        width: largest number of neighbours.
    """

    edges: Tensor | None
    atoms: Tensor | None
    place: Tensor
    n_rows: int
    width: int

    @classmethod
    def of(
        cls,
        dst: Tensor,
        n_atoms: int,
        keep: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> "Slots":
        """Lay out edges that are sorted by destination.

        Args:
            dst: centre of each edge, (E,), non-decreasing.
            n_atoms: number of atoms N.
            keep: edges to lay out, (E,) bool; all if None.
            rows: atoms that get a row, (N,) bool; all if None.
        """
        edges = None if keep is None else keep.nonzero()[:, 0]
        atoms = None if rows is None else rows.nonzero()[:, 0]
        dst = dst if edges is None else dst[edges]
        counts = torch.bincount(dst, minlength=n_atoms)
        start = counts.cumsum(0) - counts
        width = int(counts.max()) if len(dst) else 0
        column = torch.arange(len(dst), device=dst.device) - start[dst]
        row = dst if rows is None else (rows.cumsum(0) - 1)[dst]
        n_rows = n_atoms if atoms is None else len(atoms)
        return cls(edges, atoms, row * width + column, n_rows, width)

    def fill(self, values: Tensor) -> Tensor:
        """Values of all edges (E, ...) -> (n_rows, width, ...)."""
        taken = values if self.edges is None else values.index_select(0, self.edges)
        flat = taken.new_zeros(self.n_rows * self.width, *taken.shape[1:])
        flat = flat.index_copy(0, self.place, taken)
        return flat.reshape(self.n_rows, self.width, *taken.shape[1:])

    def take(self, of_atoms: Tensor) -> Tensor:
        """Values of all atoms (N, ...) -> those of the rows (n_rows, ...)."""
        return of_atoms if self.atoms is None else of_atoms.index_select(0, self.atoms)

    def add_to(self, total: Tensor, part: Tensor) -> Tensor:
        """``total`` (N, ...) plus the rows' ``part`` (n_rows, ...)."""
        if self.atoms is None:
            return total + part
        return total.index_add(0, self.atoms, part)
