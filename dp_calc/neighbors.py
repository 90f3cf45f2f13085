"""All pairs of a structure within the cutoff, as an ``EdgeList``."""

import torch
from torch import Tensor

from .models import EdgeList
from .pairs import choose_search, heights
from .structure import Structure

__all__ = ["EdgeBuilder"]

_SLACK = 1e-6
"""Å. Searches reach this much farther, so that the cutoff is decided in one place."""

_MOST_IMAGES = 1_000_000
"""Cells within the cutoff of one atom; with more the unit of the cell must be wrong."""


class EdgeBuilder:
    """Builds the sorted edges of one structure after another.

    Args:
        rcut: cutoff in Å; pairs at exactly this distance count.
        shortest_distance: pairs at this distance in Å or closer are refused.
        device: where the edges are wanted.
        backend: what searches for pairs: ``"auto"`` (vesin), ``"vesin"`` or ``"ase"``.
        neighbor_list: an ASE neighbour-list object to search with instead.

    Raises:
        TypeError: ``neighbor_list`` is no ASE neighbour list.
        ValueError: unknown backend, or a neighbour list that would miss pairs.
    """

    def __init__(
        self,
        rcut: float,
        shortest_distance: float,
        device: torch.device,
        backend: str = "auto",
        neighbor_list: object | None = None,
    ):
        self.rcut = rcut
        self.shortest_distance = shortest_distance
        self.device = device
        self._search = choose_search(backend, neighbor_list, rcut)

    def build(self, structure: Structure) -> EdgeList:
        """Find all pairs within the cutoff, images included.

        Raises:
            ValueError: two atoms are too close, the cell is too small, or the neighbour
                list given does not fit the structure.
        """
        self._refuse_short_vectors(structure)
        images = _image_range(structure, self.rcut)
        dst, src, shift = self._search(structure, self.rcut + _SLACK)
        positions, cell = structure.folded, structure.cell
        vec = positions[src] - positions[dst] + shift.to(cell.dtype) @ cell
        near = (vec.square().sum(1) <= self.rcut**2).nonzero().squeeze(1)
        key = _sort_key(dst, src, shift, len(positions), images)
        order = near[torch.argsort(key[near])]
        dst, src, shift, vec = (x[order] for x in (dst, src, shift, vec))
        self._refuse_overlap(structure, dst, src, shift, vec)
        tensors = (tensor.to(self.device) for tensor in (src, dst, vec))
        return EdgeList.from_sorted(*tensors, n_atoms=len(positions))

    def _refuse_short_vectors(self, structure: Structure) -> None:
        lengths = structure.cell[structure.pbc].norm(dim=1)
        if len(lengths) and lengths.min() <= self.shortest_distance:
            name = structure.name(0)
            raise self._too_close(name, f"a periodic image of atom {name}", lengths.min())

    def _refuse_overlap(
        self, structure: Structure, dst: Tensor, src: Tensor, shift: Tensor, vec: Tensor
    ) -> None:
        length = vec.norm(dim=1)
        close = (length <= self.shortest_distance).nonzero()
        if not len(close):
            return
        edge = int(close[0])
        i, j = int(dst[edge]), int(src[edge])
        cells = shift[edge] + structure.turns[i] - structure.turns[j]
        image = "a periodic image of " if cells.any() else ""
        other = f"{image}atom {structure.name(j)}"
        raise self._too_close(structure.name(i), other, length[edge])

    def _too_close(self, name: str, other: str, distance: Tensor) -> ValueError:
        limit = f"{self.shortest_distance:g} Å" if self.shortest_distance else "zero"
        return ValueError(
            f"atom {name} and {other} are {distance:.3g} Å apart, but this model needs "
            f"every distance to be more than {limit}; move them apart"
        )


def _image_range(structure: Structure, rcut: float) -> list[int]:
    """How many cells the cutoff reaches across along each axis."""
    crossed = torch.ceil(rcut / heights(structure.cell)) * structure.pbc
    if torch.prod(2 * crossed + 1) > _MOST_IMAGES:
        vectors = structure.cell[structure.pbc]
        raise ValueError(
            f"the cell is too small: atom {structure.name(0)} and its own images are "
            f"{vectors.norm(dim=1).min():.3g} Å apart, so that more than "
            f"{_MOST_IMAGES:g} cells lie within the cutoff; check the unit of the cell, "
            "or reduce it if it is extremely skewed"
        )
    return [int(n) for n in crossed]


def _sort_key(
    dst: Tensor, src: Tensor, shift: Tensor, n_atoms: int, images: list[int]
) -> Tensor:
    """One number per edge, ordered as (destination, source, image), (E,), int64."""
    key = dst * n_atoms + src
    for axis, crossed in enumerate(images):
        # Folded atoms are up to one cell apart, and rounding may add another.
        most = crossed + 2
        key = key * (2 * most + 1) + shift[:, axis] + most
    return key
