"""The operators of this folder in plain PyTorch, for any precision and device."""

import torch
from torch import Tensor
from torch.nn import functional as F

from .weights import StackWeights

__all__ = ["mix", "rotate_in", "tile_sum"]


def rotate_in(
    frames: Tensor, factors: Tensor, source: Tensor, scale: Tensor | None, rank: int
) -> tuple[Tensor, Tensor]:
    """Rows of the source of each edge in its frame, see ``operators.rotate_in``."""
    lmax = round(source.shape[1] ** 0.5) - 1
    turned = _dense(frames, lmax) @ source
    if rank == 0:
        per_degree = factors[:, : (lmax + 1) * source.shape[2]].unflatten(
            1, (lmax + 1, -1)
        )
        rows = turned * torch.cat([per_degree, per_degree[:, 1:], per_degree[:, 1:]], 1)
        return rows, rows[:, 0]
    sizes = [lmax + 1, lmax]
    kernels = factors[:, : rank * sum(n * n for n in sizes)].unflatten(1, (-1, rank))
    kernels = kernels.split([n * n for n in sizes], dim=1)
    orders = []
    for of_order, part in zip(
        [0, 1, 1], turned.split([*sizes, lmax], dim=1), strict=True
    ):
        kernel = kernels[of_order].unflatten(1, (sizes[of_order], -1))
        mixed = torch.einsum("eior,eih->eorh", kernel, part)
        orders.append((mixed if scale is None else mixed * scale).sum(2))
    rows = torch.cat(orders, dim=1)
    return rows, rows[:, 0]


def tile_sum(frames: Tensor, rows: Tensor, weight: Tensor, tile: int) -> Tensor:
    """Rows turned back, weighted and summed over tiles, see ``operators.tile_sum``."""
    streams = rows.unflatten(-1, (weight.shape[1], -1))
    weighted = (streams * weight[:, None, :, None]).flatten(2)
    rotation = _dense(frames, (rows.shape[1] - 1) // 3)
    n_tiles, n_rows = len(rows) // tile, tile * rows.shape[1]
    left = rotation.reshape(n_tiles, n_rows, rotation.shape[2])
    return left.mT @ weighted.reshape(n_tiles, n_rows, rows.shape[2])


def _dense(frames: Tensor, lmax: int) -> Tensor:
    """Frames (E, 3, D) as matrices from packed rows to those of the frame, (E, R, D)."""
    degree = torch.arange(lmax + 1, device=frames.device)
    of_row = torch.cat([degree, degree[1:], degree[1:]])
    order = torch.zeros_like(of_row)
    order[lmax + 1 :], order[2 * lmax + 1 :] = 1, 2
    of_column = degree.repeat_interleave(2 * degree + 1)
    return frames[:, order] * (of_row[:, None] == of_column)


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
