"""The operators of this folder in plain PyTorch, for any precision and device."""

import torch
from torch import Tensor
from torch.nn import functional as F

from .weights import StackWeights

__all__ = ["mix", "rotate_in", "tile_sum"]


def rotate_in(
    matrix: Tensor, rows: Tensor, scale: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Rows of the source of each edge in its frame, mixed.

    Args:
        matrix: (E, R, D).
        rows: features of the source, (E, D, H).
        scale: factor of each channel, (H,), or None.

    Returns:
        ``matrix @ rows * scale``, (E, R, H), and its first row, (E, H).
    """
    local = matrix @ rows
    local = local if scale is None else local * scale
    return local, local[:, 0]


def tile_sum(rotation: Tensor, rows: Tensor, weight: Tensor, tile: int) -> Tensor:
    """Rows rotated back, weighted and summed over each tile of edges.

    Args:
        rotation: (E, R, D), E a multiple of ``tile``.
        rows: (E, R, H).
        weight: per edge and stream, (E, F).
        tile: edges in a tile.

    Returns:
        sum of ``rotation.mT @ (weight rows)``, (E / tile, D, H).
    """
    streams = rows.unflatten(-1, (weight.shape[1], -1))
    weighted = (streams * weight[:, None, :, None]).flatten(2)
    n_tiles, n_rows = len(rows) // tile, tile * rows.shape[1]
    left = rotation.reshape(n_tiles, n_rows, rotation.shape[2])
    return left.mT @ weighted.reshape(n_tiles, n_rows, rows.shape[2])


def mix(rows: Tensor, weights: StackWeights) -> Tensor:
    """The SO(2) stack: residual layers with gates, the last one linear.

    Args:
        rows: (E, R, H).
        weights: of the stack, in the precision of ``rows``, not split.

    Returns:
        (E, R, H).
    """
    layout = weights.layout
    x = rows.unflatten(-1, (layout.n_focus, layout.channels)).movedim(2, 0)
    for i in range(weights.n_layers):
        update = _linear(x, weights.order_0[i, 0], weights.order_1[i, 0], layout.lmax)
        if i < weights.n_layers - 1:
            update = _gated(update, weights.gate[i, 0], layout.lmax)
        x = x + update
    return x.movedim(0, 2).flatten(2)


def _linear(x: Tensor, order_0: Tensor, order_1: Tensor, lmax: int) -> Tensor:
    """(F, E, R, C) -> (F, E, R, C)."""
    parts = x.split([lmax + 1, 2 * lmax], dim=2)
    mixed = [p.flatten(2) @ w for p, w in zip(parts, (order_0, order_1), strict=True)]
    return torch.cat(mixed, dim=2).unflatten(2, (x.shape[2], -1))


def _gated(z: Tensor, gate: Tensor, lmax: int) -> Tensor:
    scalar = z[:, :, 0]
    gates = (scalar @ gate).sigmoid().unflatten(2, (lmax, -1)).repeat(1, 1, 3, 1)
    return torch.cat([F.silu(scalar)[:, :, None], z[:, :, 1:] * gates], dim=2)
