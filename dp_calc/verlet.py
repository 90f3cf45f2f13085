r"""Verlet lists: pairs found once that serve while atoms and cell hardly change.

With the cutoff :math:`r`, a skin :math:`s` and pairs found up to :math:`r + s`, no pair
within the cutoff is missing as long as

.. math:: (r + 2 d)\, \lVert F^{-1} \rVert \le r + s,

where :math:`F` deforms the cell of the list into the present one, and no atom is farther
than :math:`d` from where that deformation takes it. Without a deformation this is the
usual rule of half the skin.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .models import EdgeList
from .structure import Structure

__all__ = ["Points", "VerletList", "edge_vectors", "squared_lengths"]


@dataclass(frozen=True)
class Points:
    """Where the atoms of a structure are, on the device of the model.

    Attributes:
        folded: positions in the cell along periodic axes, in Å, (N, 3), float64.
        cell: lattice vectors in rows, in Å, (3, 3), float64.
    """

    folded: Tensor
    cell: Tensor

    @classmethod
    def from_structure(cls, structure: Structure, device: torch.device) -> "Points":
        """Copy a structure to a device."""
        together = torch.cat([structure.folded, structure.cell]).to(device)
        return cls(together[:-3], together[-3:])


@dataclass(frozen=True)
class VerletList:
    """Pairs of one structure up to the cutoff plus a skin.

    Attributes:
        structure: that structure.
        points: the same on the device of the pairs.
        edges: the pairs in canonical order; their vectors are not kept.
        shift: lattice shift of each source between folded positions, (E, 3), int32.
        rcut: cutoff in Å.
        skin: in Å.
    """

    structure: Structure
    points: Points
    edges: EdgeList
    shift: Tensor
    rcut: float
    skin: float

    def shifts_for(self, structure: Structure, points: Points) -> Tensor | None:
        """Lattice shifts of the pairs in another structure, (E, 3), whole numbers.

        None if a pair might be missing there.
        """
        alike = torch.equal(structure.pbc, self.structure.pbc)
        if not alike or len(points.folded) != len(self.points.folded):
            return None
        start, farthest = self.points.folded, self.skin / 2
        if not torch.equal(structure.cell, self.structure.cell):
            deformation = torch.linalg.solve(self.structure.cell, structure.cell)
            shrunk = torch.linalg.matrix_norm(torch.linalg.inv(deformation), 2).item()
            farthest = ((self.rcut + self.skin) / shrunk - self.rcut) / 2
            start = start @ deformation.to(start.device)
        if farthest < 0:
            return None
        moved = points.folded - start
        # An atom that left the cell through one face came back through another.
        crossed = _nearest_images(moved, structure)
        moved = moved - crossed @ points.cell
        near = squared_lengths(moved).max() <= farthest**2
        near, any_crossed = torch.stack([near, crossed.any()]).tolist()
        if not near:
            return None
        if not any_crossed:
            return self.shift
        return self.shift - crossed[self.edges.src] + crossed[self.edges.dst]


def _nearest_images(vec: Tensor, structure: Structure) -> Tensor:
    """Whole lattice vectors in vectors, zero along open axes, (N, 3), float64."""
    inverse = torch.linalg.inv(structure.cell) * structure.pbc
    return (vec @ inverse.to(vec.device)).round()


def edge_vectors(points: Points, src: Tensor, dst: Tensor, shift: Tensor) -> Tensor:
    """From destination to the shifted source, in Å, (E, 3), float64.

    Every operation rounds each number for itself, so that a vector does not depend on
    what other edges there are, as it might in a matrix product.
    """
    x, y, z = shift.split(1, dim=1)
    image = x * points.cell[0] + y * points.cell[1] + z * points.cell[2]
    return points.folded[src] - points.folded[dst] + image


def squared_lengths(vec: Tensor) -> Tensor:
    """Squares of lengths, (E, 3) -> (E,), each for itself as in ``edge_vectors``."""
    x, y, z = vec.unbind(1)
    return x * x + y * y + z * z
