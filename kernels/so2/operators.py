"""The operators as a model calls them: first derivatives, float32, CUDA."""

import torch
from torch import Tensor

from ..derivatives import refuse_forward_mode
from . import ops
from .weights import StackWeights

__all__ = ["mix", "rotate_in", "tile_sum"]


def rotate_in(
    matrix: Tensor, rows: Tensor, scale: Tensor | None, channels: int
) -> tuple[Tensor, Tensor]:
    """Rows of the source of each edge in its frame, mixed.

    Args:
        matrix: (E, R, D).
        rows: features of the source, (E, D, H).
        scale: factor of each channel, (H,), or None.
        channels: channels of a stream, a power of two that divides H.

    Returns:
        ``matrix @ rows * scale``, (E, R, H), and its first row, (E, H).
    """
    refuse_forward_mode(matrix, rows)
    return ops.rotate_in(matrix, rows, scale, channels)


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


def tile_sum(rotation: Tensor, rows: Tensor, weight: Tensor, tile: int) -> Tensor:
    """Rows rotated back, weighted and summed over each tile of edges.

    Args:
        rotation: (E, R, D), E a multiple of ``tile``.
        rows: (E, R, H).
        weight: per edge and group of H / K channels, (E, K).
        tile: edges in a tile.

    Returns:
        sum of ``rotation.mT @ (weight rows)``, (E / tile, D, H).
    """
    if len(rows) % tile:
        raise ValueError(f"{len(rows)} edges are no whole number of tiles of {tile}")
    refuse_forward_mode(rotation, rows, weight)
    return ops.tile_sum(rotation, rows, weight, tile)
