"""Structures padded to one of few sizes, so that one captured graph serves many.

Atoms are added that have no neighbours, and edges that are in no cohort and in no sum.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .models import EdgeList
from .models.cohorts import Cohort, Cohorts

__all__ = [
    "PaddedSystem",
    "pad_condition",
    "pad_edges",
    "pad_ptr",
    "pad_system",
    "rounded_size",
]

_GROWTH = 1.125
"""Ratio of one size to the next: at most an eighth more work than needed."""


@dataclass(frozen=True)
class PaddedSystem:
    """A structure with its padding.

    Attributes:
        types: types of the atoms, the last ones padding, (N,).
        edges: edges of the atoms, the last ones padding.
        cohorts: the real edges; their indices mean those of ``edges``.
        conditions: further inputs by name.
        chunk: atoms at a time; their number is a multiple of it.
    """

    types: Tensor
    edges: EdgeList
    cohorts: Cohorts
    conditions: dict[str, Tensor]
    chunk: int

    @property
    def sizes(self) -> tuple:
        """Everything that a recorded evaluation depends on but its values."""
        conditions = sorted((name, x.shape) for name, x in self.conditions.items())
        return self.chunk, len(self.types), *self.cohorts.shape, tuple(conditions)


def pad_system(
    types: Tensor,
    edges: EdgeList,
    cohorts: Cohorts,
    conditions: Mapping[str, Tensor],
    chunk: int,
    far: float,
    few_sizes: bool,
) -> PaddedSystem:
    """Pad a structure.

    Args:
        types: types of the atoms, (N,).
        edges: their edges.
        cohorts: of these edges.
        conditions: further inputs by name; those of each atom are (N, ...).
        chunk: the number of atoms becomes a multiple of it.
        far: length in Å of the vectors of padding, beyond the cutoff.
        few_sizes: pad further, to one of few sizes.
    """
    rounded = rounded_size if few_sizes else int
    n_atoms = chunk * rounded(max(1, -(-len(types) // chunk)))
    n_cohorts, n_slots, n_sources = cohorts.shape
    n_cohorts = rounded(n_cohorts)
    if few_sizes:
        n_sources = min(n_slots, chunk * rounded_size(-(-n_sources // chunk)))
    n_edges = n_cohorts * n_slots
    more = n_atoms - len(types)
    stacked = _pad_cohorts(cohorts.stacked, edges, n_atoms, n_edges, n_cohorts, n_sources)
    return PaddedSystem(
        F.pad(types, (0, more)),
        pad_edges(edges, n_atoms, n_edges, far),
        Cohorts(stacked),
        {name: pad_condition(x, len(types), more) for name, x in conditions.items()},
        chunk,
    )


def rounded_size(count: int) -> int:
    """The next larger of the sizes that are used: all small numbers, then ever fewer."""
    size = 1
    while size < count:
        size = max(size + 1, math.floor(size * _GROWTH))
    return size


def pad_condition(values: Tensor, n_atoms: int, more: int) -> Tensor:
    """Repeat the first row for the padding; values of the whole system stay."""
    if values.ndim < 2 or len(values) != n_atoms:
        return values
    return torch.cat([values, values[:1].expand(more, *values.shape[1:])])


def pad_edges(edges: EdgeList, n_atoms: int, n_edges: int, far: float) -> EdgeList:
    """With more atoms, and edges of length ``far`` that are in no sum."""
    more_atoms, more = n_atoms - edges.n_atoms, n_edges - edges.n_edges
    last = n_atoms - 1
    vec = F.pad(edges.vec.detach(), (0, 0, 0, more))
    vec[edges.n_edges :, 2] = far
    numbers = torch.arange(edges.n_edges, n_edges, device=vec.device)
    return EdgeList(
        F.pad(edges.src, (0, more), value=last),
        F.pad(edges.dst, (0, more), value=last),
        vec,
        pad_ptr(edges.row_ptr, more_atoms),
        torch.cat([edges.by_source, numbers]),
        pad_ptr(edges.source_ptr, more_atoms),
    )


def pad_ptr(ptr: Tensor, more: int) -> Tensor:
    """The edges added are in no sum: one of so many would be waited for."""
    return torch.cat([ptr, ptr[-1:].expand(more)])


def _pad_cohorts(
    stacked: Cohort,
    edges: EdgeList,
    n_atoms: int,
    n_edges: int,
    n_cohorts: int,
    n_sources: int,
) -> Cohort:
    """More cohorts, without an edge, and more sources, without a slot, in each."""
    more = n_cohorts - len(stacked.edge)
    n_tiles = stacked.atoms.shape[1]
    wider = n_sources - stacked.sources.shape[1]

    def added(x: Tensor, value: float) -> Tensor:
        return F.pad(x, (0, 0, 0, more), value=value)

    edge = torch.where(stacked.edge == edges.n_edges, n_edges, stacked.edge)
    atoms = torch.where(stacked.atoms == edges.n_atoms, n_atoms, stacked.atoms)
    sources = torch.where(stacked.sources == edges.n_atoms, n_atoms, stacked.sources)
    tile_ptr = added(stacked.tile_ptr, 0)
    ends = stacked.source_ptr[:, -1:].expand(-1, wider)
    source_ptr = added(torch.cat([stacked.source_ptr, ends], dim=1), 0)
    tile_ptr[n_cohorts - more :, -1] = n_tiles
    return Cohort(
        edge=added(edge, n_edges),
        src=added(stacked.src, 0),
        atoms=added(atoms, n_atoms),
        tile_row=added(stacked.tile_row, n_tiles - 1),
        tile_ptr=tile_ptr,
        real=added(stacked.real, 0),
        by_source=added(stacked.by_source, 0),
        sources=added(F.pad(sources, (0, wider), value=n_atoms), n_atoms),
        source_ptr=source_ptr,
    )
