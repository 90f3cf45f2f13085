"""Cohorts of edges: whole destination rows, padded to one fixed size.

The edges of a destination fill tiles of ``TILE`` slots, the last one padded. A cohort is
a fixed number of tiles, so that one shape serves any number of atoms and edges; sums over
a tile are dense, and the tiles of a destination, which are neighbours, are added up in
order. Every sum has a fixed order.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..kernels.segment import gather, largest_of_runs, segment_sum, sum_runs
from .edges import EdgeList

__all__ = [
    "TILE",
    "Cohort",
    "CohortLayout",
    "Cohorts",
    "far_away",
    "make_cohorts",
    "slots_of_edges",
]

TILE = 16  # slots; diamond has 158 edges per atom at 6 Å, so 1 % of the slots are padding


class CohortLayout:
    """Sums over the edges of each destination row of one cohort.

    Args:
        tile_row: row of each tile, (T,), int64, non-decreasing, in 0..R - 1.
        tile_ptr: first tile of each row and the end, (R + 1,).
        real: 1 for slots that hold an edge and 0 for padding, (T * TILE,).
    """

    def __init__(self, tile_row: Tensor, tile_ptr: Tensor, real: Tensor):
        self.tile_row, self.tile_ptr, self.real = tile_row, tile_ptr, real
        self._in_order = torch.arange(len(tile_row), device=tile_row.device)

    def sum_at_dst(self, values: Tensor) -> Tensor:
        """Slots (S, ...) -> rows (R, ...)."""
        values = values * self.real.reshape(-1, *[1] * (values.ndim - 1))
        return self.add_tiles(values.unflatten(0, (-1, TILE)).sum(1))

    def sum_products_at_dst(self, left: Tensor, right: Tensor) -> Tensor:
        """Sum ``left.T @ right`` per row, (S, k, a), (S, k, b) -> (R, a, b)."""
        left = (left * self.real[:, None, None]).unflatten(0, (-1, TILE)).flatten(1, 2)
        right = right.unflatten(0, (-1, TILE)).flatten(1, 2)
        return self.add_tiles(left.mT @ right)

    def at_dst(self, rows: Tensor) -> Tensor:
        """Rows (R, ...) -> slots (S, ...)."""
        tiles = gather(rows, self.tile_row, self._in_order, self.tile_ptr)
        return tiles[:, None].expand(-1, TILE, *rows.shape[1:]).flatten(0, 1)

    def largest_at_dst(self, values: Tensor, start: Tensor) -> Tensor:
        """Largest value of each row and ``start``, (S, K), (K,) -> (R, K)."""
        values = values.detach().masked_fill(self.real[:, None] == 0, -torch.inf)
        of_tile = values.unflatten(0, (-1, TILE)).amax(1)
        largest = largest_of_runs(of_tile, self.tile_row, self._in_order, self.tile_ptr)
        return torch.maximum(largest, start.detach())

    def add_tiles(self, tiles: Tensor) -> Tensor:
        """Sums over tiles (T, ...) -> sums over rows (R, ...)."""
        return segment_sum(tiles, self.tile_row, self._in_order, self.tile_ptr)


@dataclass(frozen=True)
class Cohort:
    """Some destinations with all their edges: S slots in T tiles, at most T rows.

    Attributes:
        edge: edge in each slot, (S,); padding has the number of edges.
        src: source atom of each slot, (S,); padding has atom 0.
        atoms: destination of each row, (T,); padding has the number of atoms.
        tile_row: row of each tile, (T,), non-decreasing.
        tile_ptr: first tile of each row and the end, (T + 1,).
        real: 1 or 0 for each slot, (S,), in the precision of the model.
        by_source: slots ordered by source, (S,).
        sources: distinct sources in order, (U,); padding has the number of atoms.
        source_ptr: start of each source's run in ``by_source`` and the end, (U + 1,).
    """

    edge: Tensor
    src: Tensor
    atoms: Tensor
    tile_row: Tensor
    tile_ptr: Tensor
    real: Tensor
    by_source: Tensor
    sources: Tensor
    source_ptr: Tensor

    def add_rows(self, total: Tensor, values: Tensor) -> None:
        """Put rows (T, ...) where their atoms are in ``total``, (N + 1, ...)."""
        total.index_copy_(0, self.atoms, values)

    def add_at_src(self, total: Tensor, values: Tensor) -> None:
        """Add slots (S, ...) to the rows of their sources in ``total``, (N + 1, ...)."""
        flat = values.reshape(len(values), -1)
        sums = sum_runs(flat, self.by_source, self.source_ptr)
        # Only the padding, which has no slots, appears twice here: a fixed order.
        total.index_add_(0, self.sources, sums.reshape(-1, *total.shape[1:]))


@dataclass(frozen=True)
class Cohorts:
    """Cohorts of one size: the tensors of ``Cohort`` with their number in front."""

    stacked: Cohort

    def __len__(self) -> int:
        return len(self.stacked.edge)

    def __iter__(self) -> Iterator[Cohort]:
        columns = (x.unbind() for x in vars(self.stacked).values())
        return (Cohort(*rows) for rows in zip(*columns, strict=True))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of cohorts, slots in each, sources in each."""
        return *self.stacked.edge.shape, self.stacked.sources.shape[1]


def make_cohorts(
    edges: EdgeList, capacity: int, dtype: torch.dtype, fixed: bool = False
) -> Cohorts:
    """Pack all destinations that have edges into cohorts, in order.

    Args:
        edges: the edges, sorted by destination.
        capacity: slots of a cohort, a multiple of ``TILE``; more where one atom needs it.
        dtype: precision of the model.
        fixed: never fewer slots than that, though there be fewer edges.

    Returns:
        At least one cohort, all of the same size.
    """
    degree = edges.row_ptr.diff().cpu().numpy()
    tiles_of_atom = -(-degree // TILE)
    n_tiles = capacity // TILE
    if not fixed:  # padding costs time and memory like edges do
        n_tiles = min(n_tiles, int(tiles_of_atom.sum()))
    n_tiles = max(n_tiles, int(tiles_of_atom.max(initial=0)), 1)
    cohort, first_tile, row = _pack(tiles_of_atom, n_tiles)
    n_cohorts = int(cohort.max(initial=0)) + 1
    place = [torch.as_tensor(x).to(edges.src.device) for x in (cohort, first_tile, row)]
    return Cohorts(_fill(edges, *place, (n_cohorts, n_tiles), dtype))


def _pack(tiles_of_atom: np.ndarray, n_tiles: int) -> tuple[np.ndarray, ...]:
    """Cohort, first tile and row of each atom, filled greedily in order.

    Atoms without edges take no row; what is given for them means nothing.
    """
    end = np.cumsum(tiles_of_atom)
    first = [0]  # atom that opens each cohort
    while True:
        used = end[first[-1] - 1] if first[-1] else 0
        following = int(np.searchsorted(end, used + n_tiles, side="right"))
        if following >= len(end):
            break
        first.append(following)
    first = np.array(first)
    cohort = np.searchsorted(first, np.arange(len(end)), side="right") - 1
    before = np.concatenate([[0], end])[first]
    first_tile = end - tiles_of_atom - before[cohort]
    rank = np.cumsum(tiles_of_atom > 0)
    rank_before = np.concatenate([[0], rank])[first]
    return cohort, first_tile, rank - 1 - rank_before[cohort]


def _fill(
    edges: EdgeList,
    cohort: Tensor,
    first_tile: Tensor,
    row: Tensor,
    shape: tuple[int, int],
    dtype: torch.dtype,
) -> Cohort:
    """All tensors of ``Cohort``, given where the edges of each atom go."""
    n_cohorts, n_tiles = shape
    dst, number = edges.dst, torch.arange(edges.n_edges, device=edges.dst.device)
    slot = slots_of_edges(edges, first_tile)
    edge = number.new_full((n_cohorts, n_tiles * TILE), edges.n_edges)
    edge[cohort[dst], slot] = number
    atoms = number.new_full(shape, edges.n_atoms)
    atoms[cohort[dst], row[dst]] = dst
    # Tiles that nobody uses come last and go to the last row.
    tile_row = number.new_full(shape, n_tiles - 1)
    tile_row[cohort[dst], slot // TILE] = row[dst]
    rows = torch.arange(n_tiles + 1, device=dst.device).expand(n_cohorts, -1)
    tile_ptr = torch.searchsorted(tile_row, rows.contiguous())
    src = torch.cat([edges.src, edges.src.new_zeros(1)])[edge]
    real = (edge < edges.n_edges).to(dtype)
    return Cohort(
        edge,
        src,
        atoms,
        tile_row,
        tile_ptr,
        real,
        *_by_source(torch.where(real > 0, src, edges.n_atoms), edges.n_atoms),
    )


def slots_of_edges(edges: EdgeList, first_tile: Tensor) -> Tensor:
    """Slot of each edge, (E,); the tiles of an atom start at ``first_tile``, (N,)."""
    number = torch.arange(edges.n_edges, device=edges.dst.device)
    return first_tile[edges.dst] * TILE + number - edges.row_ptr[edges.dst]


def far_away(vec: Tensor, far: float) -> Tensor:
    """A vector for the padding, made on the device without a copy from the host."""
    return torch.cat([vec.new_zeros(1, 2), vec.new_full((1, 1), far)], dim=1)


def _by_source(src: Tensor, n_atoms: int) -> tuple[Tensor, Tensor, Tensor]:
    """``by_source``, ``sources`` and ``source_ptr`` of ``Cohort``.

    Args:
        src: source of each slot, (n, S); padding has the number of atoms.
        n_atoms: number of atoms.
    """
    n_cohorts = len(src)
    src, by_source = torch.sort(src, dim=1, stable=True)
    opens = torch.ones_like(src, dtype=torch.bool)
    opens[:, 1:] = src[:, 1:] != src[:, :-1]
    run = opens.cumsum(1) - 1
    # The padding comes last. It gets no run: a long one would be waited for.
    width = int(torch.where(src < n_atoms, run, 0).max()) + 1
    run = torch.where(src < n_atoms, run, width)
    sources = src.new_full((n_cohorts, width + 1), n_atoms).scatter_(1, run, src)
    numbers = torch.arange(width + 1, device=src.device).expand(n_cohorts, -1)
    source_ptr = torch.searchsorted(run, numbers.contiguous())
    return by_source, sources[:, :width].contiguous(), source_ptr
