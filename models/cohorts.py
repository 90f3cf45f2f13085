"""Cohorts of edges: whole destination rows, padded to one fixed size.

The edges of a destination fill tiles of ``TILE`` slots, the last one padded. A cohort is
a fixed number of tiles, so that one shape serves any number of atoms and edges; sums over
a tile are dense, and tiles are added up per destination by a small matrix product. Every
sum has a fixed order.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from .edges import EdgeList

__all__ = ["TILE", "Cohort", "CohortLayout", "make_cohorts"]

TILE = 16  # slots; diamond has 158 edges per atom at 6 Å, so 1 % of the slots are padding


class CohortLayout:
    """Sums over the edges of each destination row of one cohort.

    Args:
        tile_row: row of each tile, (tiles,), int64, in 0..tiles - 1.
        real: 1 for slots that hold an edge and 0 for padding, (tiles * TILE,).
    """

    def __init__(self, tile_row: Tensor, real: Tensor):
        self.tile_row, self.real = tile_row, real
        rows = torch.arange(len(tile_row), device=tile_row.device)
        # (rows, tiles): which tiles belong to a row.
        self.belongs = (rows[:, None] == tile_row[None, :]).to(real.dtype)

    def sum_at_dst(self, values: Tensor) -> Tensor:
        """Slots (S, ...) -> rows (R, ...)."""
        values = values * self.real.reshape(-1, *[1] * (values.ndim - 1))
        return self._add_tiles(values.unflatten(0, (-1, TILE)).sum(1))

    def sum_products_at_dst(self, left: Tensor, right: Tensor) -> Tensor:
        """Sum ``left.T @ right`` per row, (S, k, a), (S, k, b) -> (R, a, b)."""
        left = (left * self.real[:, None, None]).unflatten(0, (-1, TILE)).flatten(1, 2)
        right = right.unflatten(0, (-1, TILE)).flatten(1, 2)
        return self._add_tiles(left.mT @ right)

    def at_dst(self, rows: Tensor) -> Tensor:
        """Rows (R, ...) -> slots (S, ...)."""
        tiles = torch.tensordot(self.belongs.T, rows, dims=1)
        return tiles[:, None].expand(-1, TILE, *rows.shape[1:]).flatten(0, 1)

    def largest_at_dst(self, values: Tensor, start: Tensor) -> Tensor:
        """Largest value of each row and ``start``, (S, K), (K,) -> (R, K)."""
        values = values.detach().masked_fill(self.real[:, None] == 0, -torch.inf)
        of_tile = values.unflatten(0, (-1, TILE)).amax(1)
        elsewhere = (self.belongs == 0)[:, :, None]
        of_row = of_tile[None].masked_fill(elsewhere, -torch.inf).amax(1)
        return torch.maximum(of_row, start.detach())

    def _add_tiles(self, tiles: Tensor) -> Tensor:
        return torch.tensordot(self.belongs, tiles, dims=1)


@dataclass(frozen=True)
class Cohort:
    """Some destinations with all their edges.

    Attributes:
        edge: edge in each slot, (S,); padding has the number of edges.
        src: source atom of each slot, (S,); padding has atom 0.
        atoms: destination of each row, (R,); padding has the number of atoms.
        tile_row: row of each tile, (tiles,).
        real: 1 or 0 for each slot, (S,), in the precision of the model.
    """

    edge: Tensor
    src: Tensor
    atoms: Tensor
    tile_row: Tensor
    real: Tensor

    @cached_property
    def by_source(self) -> tuple[Tensor, Tensor, Tensor]:
        """Distinct sources (U,), slots ordered by source, start of each run (U + 1,)."""
        order = torch.argsort(self.src, stable=True)
        sources, counts = torch.unique_consecutive(self.src[order], return_counts=True)
        start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return sources, order, start

    def add_at_src(self, total: Tensor, values: Tensor) -> None:
        """Add the slots (S, ...) to the rows of their sources in ``total``, (N, ...)."""
        sources, order, start = self.by_source
        flat = values.reshape(len(values), -1)
        sums = embedding_bag(order, flat, start, mode="sum", include_last_offset=True)
        # No source appears twice here, so the order of additions is fixed.
        total.index_add_(0, sources, sums.reshape(-1, *total.shape[1:]))


def make_cohorts(edges: EdgeList, capacity: int, dtype: torch.dtype) -> list[Cohort]:
    """Pack all destinations that have edges into cohorts, in order.

    Args:
        edges: the edges, sorted by destination.
        capacity: slots of a cohort, a multiple of ``TILE``; more where one atom needs it,
            fewer where there are fewer edges.
        dtype: precision of the model.

    Returns:
        At least one cohort, all of the same size.
    """
    degree = edges.row_ptr.diff().cpu()
    tiles_of_atom = (degree + TILE - 1) // TILE
    # No larger than needed: padding costs time and memory like edges do.
    n_tiles = min(capacity // TILE, int(tiles_of_atom.sum()))
    n_tiles = max(n_tiles, int(tiles_of_atom.max()), 1)
    cohort_of_atom, first_tile = _pack(tiles_of_atom, n_tiles)
    n_cohorts = int(cohort_of_atom.max()) + 1
    slots = _fill(edges, degree, cohort_of_atom, first_tile, n_tiles, n_cohorts)
    device = edges.src.device
    padded_src = torch.cat([edges.src, edges.src.new_zeros(1)])
    cohorts = []
    for edge, atoms, tile_row in zip(*slots, strict=True):
        edge, atoms, tile_row = (x.to(device) for x in (edge, atoms, tile_row))
        real = (edge < edges.n_edges).to(dtype)
        cohorts.append(Cohort(edge, padded_src[edge], atoms, tile_row, real))
    return cohorts


def _pack(tiles_of_atom: Tensor, n_tiles: int) -> tuple[Tensor, Tensor]:
    """Cohort of each atom and its first tile there, filled greedily in order."""
    cohort_of_atom, first_tile = [], []
    cohort, used = 0, 0
    for tiles in tiles_of_atom.tolist():
        if used + tiles > n_tiles:
            cohort, used = cohort + 1, 0
        cohort_of_atom.append(cohort)
        first_tile.append(used)
        used += tiles
    return torch.tensor(cohort_of_atom), torch.tensor(first_tile)


def _fill(edges, degree, cohort_of_atom, first_tile, n_tiles, n_cohorts):
    """Edge of each slot, atom of each row, row of each tile, per cohort."""
    start = edges.row_ptr[:-1].cpu()
    dst = torch.repeat_interleave(torch.arange(edges.n_atoms), degree)
    slot = first_tile[dst] * TILE + torch.arange(edges.n_edges) - start[dst]
    edge = torch.full((n_cohorts, n_tiles * TILE), edges.n_edges)
    edge[cohort_of_atom[dst], slot] = torch.arange(edges.n_edges)
    # Row = rank of the atom among those with edges in its cohort.
    busy = degree > 0
    rank = torch.zeros_like(degree)
    rank[busy] = torch.arange(int(busy.sum()))
    first = torch.full((n_cohorts,), 2**62).scatter_reduce(
        0, cohort_of_atom[busy], rank[busy], "amin"
    )
    row = rank - first[cohort_of_atom]
    atoms = torch.full((n_cohorts, n_tiles), edges.n_atoms)
    atoms[cohort_of_atom[busy], row[busy]] = torch.arange(edges.n_atoms)[busy]
    # Unused tiles hold padding only; any row does for them.
    tile_row = torch.full((n_cohorts, n_tiles), n_tiles - 1)
    tile = slot // TILE
    tile_row[cohort_of_atom[dst], tile] = row[dst]
    return edge, atoms, tile_row
