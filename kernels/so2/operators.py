"""The operators as a model calls them: first derivatives, float32, CUDA."""

import torch
from torch import Tensor

from ..derivatives import refuse_forward_mode
from . import ops
from .weights import StackWeights

__all__ = ["mix", "rotate_in", "tile_sum"]


def rotate_in(
    frames: Tensor,
    factors: Tensor,
    source: Tensor,
    scale: Tensor | None,
    rank: int,
    channels: int,
) -> tuple[Tensor, Tensor]:
    """Rows of the source of each edge in its frame, mixed by degree.

    Args:
        frames: from ``kernels.edge_frames``, (E, 3, D).
        factors: of each edge, (E, n): see ``rank``; columns past the last are not read.
        source: features of the source, (E, D, H).
        scale: factor of each kernel and channel, (rank, H), or None.
        rank: number of kernels that mix the degrees of one order, the same for -1 and +1,
            entry ``[from, to, kernel]`` of order 0 first; 0 where the factors are one per
            degree and channel, ``[degree, channel]``, and nothing mixes.
        channels: channels of a stream, a power of two that divides H.

    Returns:
        Rows (E, R, H), and the first of them, (E, H).
    """
    refuse_forward_mode(frames, factors, source)
    return ops.rotate_in(frames, factors, source, scale, rank, channels)


def mix(rows: Tensor, weights: StackWeights, cohort_edges: int) -> Tensor:
    """The SO(2) stack: residual layers with gates, the last one linear.

    Args:
        rows: (E, R, H).
        weights: of the stack.
        cohort_edges: as in ``KernelOptions``.

    Returns:
        (E, R, H).
    """
    refuse_forward_mode(rows)
    save = torch.is_grad_enabled() and rows.requires_grad
    n_focus, precision = weights.layout.n_focus, weights.precision
    options = (n_focus, precision, cohort_edges, save)
    return ops.mix(rows, *weights.tensors, *options)[0]


def tile_sum(frames: Tensor, rows: Tensor, weight: Tensor, tile: int) -> Tensor:
    """Rows rotated back, weighted and summed over each tile of edges.

    Args:
        frames: from ``kernels.edge_frames``, (E, 3, D), E a multiple of ``tile``.
        rows: (E, R, H).
        weight: per edge and group of H / K channels, (E, K).
        tile: edges in a tile.

    Returns:
        (E / tile, D, H).
    """
    if len(rows) % tile:
        raise ValueError(f"{len(rows)} edges are no whole number of tiles of {tile}")
    refuse_forward_mode(frames, rows, weight)
    return ops.tile_sum(frames, rows, weight, tile)
