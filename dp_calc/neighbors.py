"""All pairs of a structure within the cutoff, as an ``EdgeList``."""

from typing import Any

import torch
from torch import Tensor

from .boxes import heights
from .images import Images
from .models import EdgeList
from .pairs import Pairs, choose_search
from .structure import Structure
from .verlet import Points, VerletList, squared_lengths

__all__ = ["EdgeBuilder"]

_SLACK = 1e-6
"""Å. Searches reach this much farther, so that the cutoff is decided in one place."""

_MOST_IMAGES = 1_000_000
"""Cells within the cutoff of one atom; with more the unit of the cell must be wrong."""


class EdgeBuilder:
    """Builds the sorted edges of one structure after another.

    The edges of a structure are the same to the last bit whatever was built before.

    Args:
        rcut: cutoff in Å; pairs at exactly this distance count.
        shortest_distance: pairs at this distance in Å or closer are refused.
        device: where the edges are wanted.
        backend: what searches for pairs: ``"auto"`` (vesin), ``"vesin"`` or ``"ase"``.
        neighbor_list: an ASE neighbour-list object to search with instead.
        skin: in Å; a search reaches this much farther, and its pairs then serve until
            atoms or cell have changed by too much. An ASE object has a skin of its own.

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
        skin: float = 0.0,
    ):
        self.rcut = rcut
        self.shortest_distance = shortest_distance
        self.device = device
        self.skin = skin if neighbor_list is None else 0.0
        self._search = choose_search(backend, neighbor_list, rcut, device)
        self._list: VerletList | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the list, so that copies start with none."""
        return {**vars(self), "_list": None}

    def build(self, structure: Structure, points: Points | None = None) -> EdgeList:
        """Find all pairs within the cutoff, images included.

        Args:
            structure: the structure.
            points: the same on the device, if it is there already.

        Raises:
            ValueError: two atoms are too close, the cell is too small, or the neighbour
                list given does not fit the structure.
        """
        self._refuse_short_vectors(structure)
        if points is None:
            points = Points.from_structure(structure, self.device)
        # A name of its own: another thread may replace the attribute meanwhile.
        pairs, image = self._list, None
        if pairs is not None:
            image = pairs.images_for(structure, points)
        if pairs is None or image is None:
            pairs = self._find(structure, points)
            image = pairs.image
            self._list = pairs if self.skin else None
        edges = pairs.edges_of(points, image)
        self._refuse_overlap(structure, edges)
        return edges

    def _find(self, structure: Structure, points: Points) -> VerletList:
        """Search for the pairs up to the cutoff plus the skin, and sort them."""
        _refuse_small_cell(structure, self.rcut)
        reach = self.rcut + self.skin + _SLACK
        found = self._search(structure, reach)
        dst, src, shift = _within(found, points, reach)
        images = Images(_most_cells(structure, reach), self.device)
        image, n_atoms = images.number(shift), len(points.folded)
        order = torch.argsort((dst * n_atoms + src) * images.count + image)
        # The vectors of the list are never used: those of an edge come from where its
        # atoms are now.
        none = points.folded.new_zeros(()).expand(len(order), 3)
        edges = EdgeList.from_sorted(src[order], dst[order], none, n_atoms)
        image = image[order].to(torch.int32)
        return VerletList(structure, points, edges, images, image, self.rcut, self.skin)

    def _refuse_short_vectors(self, structure: Structure) -> None:
        lengths = structure.cell[structure.pbc].norm(dim=1)
        if len(lengths) and lengths.min() <= self.shortest_distance:
            name = structure.name(0)
            raise self._too_close(name, f"a periodic image of atom {name}", lengths.min())

    def _refuse_overlap(self, structure: Structure, edges: EdgeList) -> None:
        length = edges.vec.norm(dim=1)
        close = length <= self.shortest_distance
        if not close.any():
            return
        edge = int(close.nonzero()[0])
        i, j = int(edges.dst[edge]), int(edges.src[edge])
        apart = structure.positions[j] - structure.positions[i]
        direct = torch.allclose(apart, edges.vec[edge].cpu(), rtol=0, atol=_SLACK)
        image = "" if direct else "a periodic image of "
        other = f"{image}atom {structure.name(j)}"
        raise self._too_close(structure.name(i), other, length[edge])

    def _too_close(self, name: str, other: str, distance: Tensor) -> ValueError:
        limit = f"{self.shortest_distance:g} Å" if self.shortest_distance else "zero"
        return ValueError(
            f"atom {name} and {other} are {distance:.3g} Å apart, but this model needs "
            f"every distance to be more than {limit}; move them apart"
        )


def _within(pairs: Pairs, points: Points, reach: float) -> Pairs:
    """Those pairs that are not farther apart than the reach, on the device."""
    dst, src, shift = (x.to(points.cell.device) for x in pairs)
    image = shift.to(points.cell.dtype) @ points.cell
    vec = points.folded[src] - points.folded[dst] + image
    near = (squared_lengths(vec) <= reach**2).nonzero().squeeze(1)
    return dst[near], src[near], shift[near]


def _cells_across(structure: Structure, reach: float) -> Tensor:
    """How many cells a distance reaches across along each axis, (3,)."""
    return torch.ceil(reach / heights(structure.cell)) * structure.pbc


def _most_cells(structure: Structure, reach: float) -> tuple[int, int, int]:
    """Largest shift along each axis for pairs within reach, also later in a Verlet list.

    Folded atoms are up to one cell apart, rounding may add another, and afterwards either
    of them may cross a face of the cell.
    """
    a, b, c = (int(n) + 4 if n else 0 for n in _cells_across(structure, reach).tolist())
    return a, b, c


def _refuse_small_cell(structure: Structure, rcut: float) -> None:
    if torch.prod(2 * _cells_across(structure, rcut) + 1) > _MOST_IMAGES:
        vectors = structure.cell[structure.pbc]
        raise ValueError(
            f"the cell is too small: atom {structure.name(0)} and its own images are "
            f"{vectors.norm(dim=1).min():.3g} Å apart, so that more than "
            f"{_MOST_IMAGES:g} cells lie within the cutoff; check the unit of the cell, "
            "or reduce it if it is extremely skewed"
        )
