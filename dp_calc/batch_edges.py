"""Edges of many small structures in one search over all their pairs.

A search for one small structure is mostly overhead. Here candidates are all pairs of
atoms of each structure, combined with all lattice shifts that can bring a pair within the
cutoff; a few operations on long tensors decide about those of all structures.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .structure import Structure

__all__ = ["Edges", "SmallSearch"]

_MOST_CANDIDATES = 2**16
"""Of one structure; for one with more a search by cells is faster."""

_ROUNDING = 1e-3
"""Cells. Folded atoms are up to one cell apart, and this much more at most."""

Edges = tuple[Tensor, Tensor, Tensor]
"""Source (E,), destination (E,) and vector (E, 3), sorted as in ``EdgeList``."""


class SmallSearch:
    """Finds the edges of small structures.

    Args:
        rcut: cutoff in Å; pairs at exactly this distance count.
        shortest_distance: in Å; structures with pairs this close are left to others.
        device: where the edges are wanted.
    """

    def __init__(self, rcut: float, shortest_distance: float, device: torch.device):
        self.rcut = rcut
        self.shortest_distance = shortest_distance
        self.device = device

    def candidates(self, structure: Structure) -> int | None:
        """How many there are of a structure; None if too many for this search."""
        most = self._most_shifts(structure.cell.numpy(), structure.pbc.numpy())
        n = len(structure.positions) ** 2 * (2 * most + 1).prod()
        return int(n) if n <= _MOST_CANDIDATES else None

    def find(self, structures: Sequence[Structure]) -> list[Edges | None]:
        """Find all pairs within the cutoff.

        Args:
            structures: none with too many candidates.

        Returns:
            The edges of each structure, with its own numbering of atoms, on the device;
            None for a structure with two atoms too close to each other.
        """
        n_atoms = torch.tensor([len(s.positions) for s in structures])
        shifts, n_shifts = self._shifts(structures)
        src, dst, difference = _pairs(structures, n_atoms)
        pair, shift = self._combine(n_atoms**2, n_shifts)
        # Not indexed by brackets: this is twice as fast on a CPU.
        vec = self._take(difference, pair) + self._take(shifts, shift)
        x, y, z = vec.unbind(1)
        square = x * x + y * y + z * z
        close = square <= self.shortest_distance**2
        near = ((square <= self.rcut**2) & ~close).nonzero()[:, 0]
        owner = torch.arange(len(n_atoms)).repeat_interleave(n_atoms**2)
        n_edges, n_close = (
            torch.bincount(
                self._take(owner, pair[which]), minlength=len(n_atoms)
            ).tolist()
            for which in (near, close)
        )
        pair, vec = pair[near], vec.index_select(0, near)
        tensors = (self._take(src, pair), self._take(dst, pair), vec)
        parts = zip(*(x.split(n_edges) for x in tensors), strict=True)
        # The one thing that may be at no distance from an atom is the atom itself.
        return [
            part if count == len(structure.positions) else None
            for part, count, structure in zip(parts, n_close, structures, strict=True)
        ]

    def _take(self, rows: Tensor, index: Tensor) -> Tensor:
        return rows.to(self.device).index_select(0, index)

    def _most_shifts(self, cell: np.ndarray, pbc: np.ndarray) -> np.ndarray:
        """Largest shift along each axis that can matter, (..., 3), whole numbers."""
        # NumPy takes a tenth of the time of torch for one small matrix.
        inverse_heights = np.linalg.norm(np.linalg.inv(cell), axis=-2)
        return np.floor(self.rcut * inverse_heights + 1 + _ROUNDING) * pbc

    def _shifts(self, structures: Sequence[Structure]) -> tuple[Tensor, Tensor]:
        """Lattice vectors in Å of all structures, (sum, 3), and how many each has."""
        cell = torch.stack([s.cell for s in structures])
        pbc = torch.stack([s.pbc for s in structures])
        most = torch.from_numpy(self._most_shifts(cell.numpy(), pbc.numpy())).long()
        sizes = 2 * most + 1
        counts = sizes.prod(1)
        owner, index = _ragged(counts)
        _, n_y, n_z = sizes[owner].unbind(1)
        most, cell = most[owner], cell[owner]
        steps = torch.stack([index // (n_y * n_z), index // n_z % n_y, index % n_z], 1)
        x, y, z = (steps - most).to(cell.dtype).split(1, dim=1)
        return x * cell[:, 0] + y * cell[:, 1] + z * cell[:, 2], counts

    def _combine(self, n_pairs: Tensor, n_shifts: Tensor) -> tuple[Tensor, Tensor]:
        """Index of the pair and of the shift of every candidate."""
        per_pair = n_shifts.repeat_interleave(n_pairs)
        first_shift = (n_shifts.cumsum(0) - n_shifts).repeat_interleave(n_pairs)
        skipped = first_shift - (per_pair.cumsum(0) - per_pair)
        total = int(per_pair.sum())
        pair = torch.arange(len(per_pair), device=self.device).repeat_interleave(
            per_pair.to(self.device), output_size=total
        )
        index = torch.arange(total, device=self.device)
        return pair, index + self._take(skipped, pair)


def _pairs(
    structures: Sequence[Structure], n_atoms: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Ordered pairs of atoms: source, destination, and the vector between them in Å."""
    positions = torch.cat([s.positions for s in structures])
    turns = torch.cat([s.turns for s in structures])
    cell = torch.stack([s.cell for s in structures]).repeat_interleave(n_atoms, 0)
    x, y, z = turns.split(1, dim=1)
    positions = positions - (x * cell[:, 0] + y * cell[:, 1] + z * cell[:, 2])
    owner, index = _ragged(n_atoms**2)
    dst, src = index // n_atoms[owner], index % n_atoms[owner]
    first = (n_atoms.cumsum(0) - n_atoms)[owner]
    return src, dst, positions[first + src] - positions[first + dst]


def _ragged(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Row and place in the row of each entry of rows of some lengths."""
    row = torch.arange(len(counts)).repeat_interleave(counts)
    return row, torch.arange(len(row)) - (counts.cumsum(0) - counts)[row]
