"""Searches for pairs of atoms: candidates for edges, in any order.

A search takes a structure and a distance in Å. It returns at least all pairs up to that
distance, each in both directions: destination (P,), source (P,) and lattice shift of the
source (P, 3), all int64 and on any device, where the shift is meant between folded
positions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.neighborlist import (
    NeighborList,
    NewPrimitiveNeighborList,
    PrimitiveNeighborList,
    primitive_neighbor_list,
)

from .boxes import search_box
from .structure import Structure
from .vesin_search import Pairs, VesinSearch

__all__ = ["Pairs", "Search", "choose_search"]

Search = Callable[[Structure, float], Pairs]


def choose_search(
    backend: str,
    neighbor_list: object | None,
    rcut: float,
    device: torch.device,
) -> Search:
    """Pick the search a user asked for.

    Args:
        backend: ``"auto"`` (vesin), ``"vesin"`` or ``"ase"``.
        neighbor_list: an object of ``ase.neighborlist`` to search with instead.
        rcut: distance in Å up to which pairs will be needed.
        device: where they are wanted; vesin searches there.

    Raises:
        TypeError: ``neighbor_list`` is no ASE neighbour list.
        ValueError: unknown backend, or a neighbour list that would miss pairs.
    """
    if not isinstance(backend, str) or backend not in _BACKENDS:
        raise ValueError(
            f"nlist_backend must be {', '.join(map(repr, _BACKENDS))}, not {backend!r}"
        )
    if neighbor_list is None:
        return _ase_search if backend == "ase" else VesinSearch(device)
    if backend == "vesin":
        raise ValueError(
            'give either neighbor_list or nlist_backend="vesin": a neighbour-list object '
            "searches for itself"
        )
    return _AseListSearch(neighbor_list, rcut)


def _ase_search(structure: Structure, reach: float) -> Pairs:
    points, box = search_box(structure, reach)
    arrays = primitive_neighbor_list(
        "ijS", (True, True, True), box.numpy(), points.numpy(), reach
    )
    dst, src, shift = (torch.from_numpy(np.asarray(a, np.int64)) for a in arrays)
    return dst, src, shift


_BACKENDS = ("auto", "vesin", "ase")


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
        self.primitive: Any = getattr(neighbor_list, "nl", neighbor_list)
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
