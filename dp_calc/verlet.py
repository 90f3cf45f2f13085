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

from .images import Images
from .models import EdgeList
from .structure import Structure

__all__ = ["Points", "VerletList", "squared_lengths"]


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
        images: all lattice shifts that may occur.
        image: number of the shift of each source between folded positions, (E,), int32.
        rcut: cutoff in Å.
        skin: in Å.
    """

    structure: Structure
    points: Points
    edges: EdgeList
    images: Images
    image: Tensor
    rcut: float
    skin: float

    def edges_of(self, points: Points, image: Tensor) -> EdgeList:
        """Those pairs that are within the cutoff.

        Args:
            points: where the atoms are.
            image: numbers from ``images_for`` of the same structure.
        """
        src, dst = self.edges.src, self.edges.dst
        vec = points.folded.index_select(0, src) - points.folded.index_select(0, dst)
        vec = vec + self.images.vectors(points.cell).index_select(0, image)
        return self.edges.with_vec(vec).select(squared_lengths(vec) <= self.rcut**2)

    def images_for(self, structure: Structure, points: Points) -> Tensor | None:
        """Numbers of the shifts of the pairs in another structure, (E,).

        None if a pair might be missing there.
        """
        alike = torch.equal(structure.pbc, self.structure.pbc)
        if not alike or len(points.folded) != len(self.points.folded):
            return None
        start, farthest = self.points.folded, self.skin / 2
        if not torch.equal(structure.cell, self.structure.cell):
            deformation = torch.linalg.solve(self.structure.cell, structure.cell)
            farthest = self._farthest(deformation)
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
        return self._shifted(crossed) if any_crossed else self.image

    def _farthest(self, deformation: Tensor) -> float:
        """How far atoms may be from where a deformation takes them, in Å."""
        # A cell that swells misses no pairs, but the list would hold ever more in vain.
        pair = torch.stack([deformation, torch.linalg.inv(deformation)])
        change = torch.linalg.matrix_norm(pair, 2).max().item()
        return ((self.rcut + self.skin) / change - self.rcut) / 2

    def _shifted(self, crossed: Tensor) -> Tensor:
        """Numbers of the shifts after atoms have crossed faces of the cell, (N, 3)."""
        step = self.images.step(crossed).to(self.image.dtype)
        return self.image - step[self.edges.src] + step[self.edges.dst]


def _nearest_images(vec: Tensor, structure: Structure) -> Tensor:
    """Whole lattice vectors in vectors, zero along open axes, (N, 3), float64."""
    inverse = torch.linalg.inv(structure.cell) * structure.pbc
    return (vec @ inverse.to(vec.device)).round()


def squared_lengths(vec: Tensor) -> Tensor:
    """Squares of lengths, (E, 3) -> (E,), each rounded for itself."""
    x, y, z = vec.unbind(1)
    return x * x + y * y + z * z
