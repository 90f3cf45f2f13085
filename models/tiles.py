"""Every edge in tiles: slots of ``TILE`` edges that belong to one destination."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .cohorts import TILE, far_away, slots_of_edges
from .edges import EdgeList

__all__ = ["Tiles", "make_tiles", "vectors_in_slots"]


@dataclass(frozen=True)
class Tiles:
    """The edges of each atom in tiles of their own, S slots in T tiles.

    Attributes:
        edge: edge in each slot, (S,); padding has the number of edges.
        src: source atom of each slot, (S,); padding has atom 0.
        tile_row: destination of each tile, (T,), non-decreasing.
        tile_ptr: first tile of each atom and the end, (N + 1,); tiles after the end
            belong to none.
        real: 1 or 0 for each slot, (S,), in the precision of the model.
        by_source: slots ordered by source, (S,); padding follows the last run.
        source_ptr: start of each source's run in ``by_source`` and the end, (N + 1,).
    """

    edge: Tensor
    src: Tensor
    tile_row: Tensor
    tile_ptr: Tensor
    real: Tensor
    by_source: Tensor
    source_ptr: Tensor


def make_tiles(
    edges: EdgeList, dtype: torch.dtype, rounded: Callable[[int], int] = int
) -> Tiles:
    """Put all edges into tiles, in order.

    Args:
        edges: the edges, sorted by destination.
        dtype: precision of the model.
        rounded: number of tiles to be had where so many are needed.
    """
    tiles = -(-edges.row_ptr.diff() // TILE)
    tile_ptr = torch.cat([tiles.new_zeros(1), tiles.cumsum(0)])
    n_tiles = rounded(int(tile_ptr[-1]))
    tile = torch.arange(n_tiles, device=tiles.device)
    tile_row = torch.searchsorted(tile_ptr, tile, right=True) - 1
    slot = slots_of_edges(edges, tile_ptr)
    edge = slot.new_full((n_tiles * TILE,), edges.n_edges)
    edge[slot] = torch.arange(edges.n_edges, device=slot.device)
    real = (edge < edges.n_edges).to(dtype)
    by_source, n_padding = slot[edges.by_source], len(edge) - edges.n_edges
    if n_padding:
        # CPU sums read on past the last run: there a slot that gives nothing is repeated.
        by_source = torch.cat([by_source, real.argmin().expand(n_padding)])
    return Tiles(
        edge,
        torch.cat([edges.src, edges.src.new_zeros(1)])[edge],
        tile_row.clamp(0, max(edges.n_atoms - 1, 0)),
        tile_ptr,
        real,
        by_source,
        edges.source_ptr,
    )


def vectors_in_slots(vec: Tensor, edge: Tensor, far: float) -> Tensor:
    """Edge vectors (E, 3) -> those of the slots, (..., 3).

    Args:
        vec: edge vectors in Å.
        edge: edge in each slot, (...), each in one; padding has the number of edges.
        far: length in Å of the vectors of padding.
    """
    return _VectorsInSlots.apply(vec, edge, far)


class _VectorsInSlots(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vec, edge, far):
        ctx.save_for_backward(edge)
        ctx.n_edges = len(vec)
        with_padding = torch.cat([vec, far_away(vec, far)])
        return with_padding.index_select(0, edge.flatten()).unflatten(0, edge.shape)

    @staticmethod
    def backward(ctx, grad):
        (edge,) = ctx.saved_tensors
        of_vec = grad.new_zeros(ctx.n_edges + 1, 3)
        # All of the padding is written to the last row.
        of_vec.index_copy_(0, edge.flatten(), grad.reshape(-1, 3))
        return of_vec[:-1], None, None
