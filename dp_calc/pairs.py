"""Searches for pairs of atoms: candidates for edges, in any order.

A search takes a structure and a distance in Å. It returns at least all pairs up to that
distance, each in both directions: destination (P,), source (P,) and lattice shift of the
source (P, 3), all int64, where the shift is meant between folded positions.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
import vesin
from ase import Atoms
from ase.neighborlist import (
    NeighborList,
    NewPrimitiveNeighborList,
    PrimitiveNeighborList,
    primitive_neighbor_list,
)
from torch import Tensor

from .structure import Structure

__all__ = ["Search", "choose_search", "heights"]

Pairs = tuple[Tensor, Tensor, Tensor]
Search = Callable[[Structure, float], Pairs]


def choose_search(backend: str, neighbor_list: object | None, rcut: float) -> Search:
    """Pick the search a user asked for.

    Args:
        backend: ``"auto"`` (vesin), ``"vesin"`` or ``"ase"``.
        neighbor_list: an object of ``ase.neighborlist`` to search with instead.
        rcut: distance in Å up to which pairs will be needed.

    Raises:
        TypeError: ``neighbor_list`` is no ASE neighbour list.
        ValueError: unknown backend, or a neighbour list that would miss pairs.
    """
    if not isinstance(backend, str) or backend not in _BACKENDS:
        raise ValueError(
            f"nlist_backend must be {', '.join(map(repr, _BACKENDS))}, not {backend!r}"
        )
    if neighbor_list is None:
        return _BACKENDS[backend]
    if backend == "vesin":
        raise ValueError(
            'give either neighbor_list or nlist_backend="vesin": a neighbour-list object '
            "searches for itself"
        )
    return _AseListSearch(neighbor_list, rcut)


def _vesin_search(structure: Structure, reach: float) -> Pairs:
    points, box = _search_box(structure, reach)
    while _breaks_vesin(box, reach):
        reach *= 1.1
        points, box = _search_box(structure, reach)
    search = vesin.NeighborList(cutoff=reach, full_list=True)
    pairs, shift = search.compute(points, box, True, "PS")
    dst, src = pairs.to(torch.int64).unbind(1)
    return dst, src, shift.to(torch.int64)


def _breaks_vesin(box: Tensor, reach: float) -> bool:
    """Whether vesin would leave an axis of its grid without a bin, and divide by zero.

    It thins out a grid of more than 1e5 bins to that number and keeps its aspect ratio,
    however elongated it is. Seen in vesin 0.6.2; the limits here are a little stricter.
    """
    x, y, z = torch.floor(heights(box) / reach).clamp(min=1).tolist()
    if x * y * z < 0.9e5:
        return False
    z_left = math.floor((1e5 * z**2 / (x * y)) ** (1 / 3))
    y_left = math.floor(y / z * z_left)
    return min(z_left, y_left, math.floor(x / y * y_left)) < 2


def _ase_search(structure: Structure, reach: float) -> Pairs:
    points, box = _search_box(structure, reach)
    arrays = primitive_neighbor_list(
        "ijS", (True, True, True), box.numpy(), points.numpy(), reach
    )
    return tuple(torch.from_numpy(np.asarray(a, dtype=np.int64)) for a in arrays)


_BACKENDS = {"auto": _vesin_search, "vesin": _vesin_search, "ase": _ase_search}


class _AseListSearch:
    """Pairs from an ASE neighbour-list object, with whatever options it was made.

    Half lists are completed and self-pairs dropped; extra pairs from a skin fall to the
    cutoff later. Only a list that could miss pairs is refused.
    """

    def __init__(self, neighbor_list: object, rcut: float):
        classes = (NeighborList, NewPrimitiveNeighborList, PrimitiveNeighborList)
        if not isinstance(neighbor_list, classes):
            raise TypeError(
                "neighbor_list must be an object of ase.neighborlist (NeighborList, "
                "NewPrimitiveNeighborList or PrimitiveNeighborList), not "
                f"{type(neighbor_list).__name__}"
            )
        self.list = neighbor_list
        self.primitive = getattr(neighbor_list, "nl", neighbor_list)
        self.rcut = rcut
        self._refuse_gaps()

    def __call__(self, structure: Structure, reach: float) -> Pairs:
        n_atoms = len(structure.positions)
        self._refuse_gaps()  # again: the object is the caller's and may have changed
        if len(self.primitive.cutoffs) != n_atoms:
            raise ValueError(
                f"neighbor_list was made for {len(self.primitive.cutoffs)} atoms, but "
                f"this structure has {n_atoms}"
            )
        self._update(structure)
        dst, src, shift = self._read(n_atoms)
        if not self.primitive.bothways:
            dst, src = torch.cat([dst, src]), torch.cat([src, dst])
            shift = torch.cat([shift, -shift])
        # The list counts cells between the atoms as given, not as folded.
        shift = shift + (structure.turns[src] - structure.turns[dst]).to(torch.int64)
        other = (dst != src) | shift.any(1)
        return dst[other], src[other], shift[other]

    def _read(self, n_atoms: int) -> Pairs:
        lists = [self.primitive.get_neighbors(atom) for atom in range(n_atoms)]
        counts = torch.tensor([len(indices) for indices, _ in lists])
        dst = torch.repeat_interleave(torch.arange(n_atoms), counts)
        src = torch.from_numpy(np.concatenate([i for i, _ in lists]).astype(np.int64))
        shift = np.concatenate([np.reshape(s, (-1, 3)) for _, s in lists])
        return dst, src, torch.from_numpy(shift.astype(np.int64))

    def _update(self, structure: Structure) -> None:
        tensors = (structure.positions, structure.cell, structure.pbc)
        positions, cell, pbc = (tensor.numpy() for tensor in tensors)
        if isinstance(self.list, NeighborList):
            self.list.update(Atoms(positions=positions, cell=cell, pbc=pbc))
        else:
            self.list.update(pbc, cell, positions)

    def _refuse_gaps(self) -> None:
        rcut = self.rcut
        radii = np.asarray(self.primitive.cutoffs, dtype=float) - self.primitive.skin
        if np.ndim(radii) != 1 or self.primitive.use_scaled_positions:
            raise ValueError(
                "neighbor_list must have one cutoff radius per atom and must not use "
                "scaled positions"
            )
        # Two spheres must touch across the cutoff; the skin is used up by moving atoms.
        if not (2 * radii >= rcut * (1 - 1e-12)).all():
            raise ValueError(
                f"neighbor_list finds pairs up to {2 * radii.min():g} Å only, but this "
                f"model needs {rcut:g} Å; give every atom a cutoff of {rcut / 2:g} Å"
            )


def _search_box(structure: Structure, reach: float) -> tuple[Tensor, Tensor]:
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
