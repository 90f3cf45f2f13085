"""The operator as a model calls it: first derivatives by everything but the tables."""

import torch
from torch import Tensor

from ..derivatives import refuse_forward_mode
from . import ops
from .tables import WeightTables

__all__ = ["edge_weights"]


def edge_weights(
    bias: Tensor,
    query: Tensor,
    key: Tensor,
    strength: Tensor,
    scalars: Tensor | None,
    tile_row: Tensor,
    tile_ptr: Tensor,
    tables: WeightTables,
    tile: int,
) -> Tensor:
    """Weights of the messages of edges, K = F heads of them for F streams.

    ``m / (null + sum of m)`` over the slots of each row, with
    ``m = strength^2 exp(q . k / sqrt(H / K) + bias)``; times the share of the stream,
    ``0.98 softmax + 0.02 / F`` over the F streams. All tensors are float32 or int64.

    Args:
        bias: of the logits, (S, K).
        query: of each row, (R, H); the channels of a head are neighbours, their number a
            power of two.
        key: of each slot, (S, H).
        strength: not negative, zero in slots without an edge, (S,).
        scalars: from which the shares are made, (S, H), or None: no shares.
        tile_row: row of each tile of slots, (S / tile,), non-decreasing.
        tile_ptr: first tile of each row and the end, (R + 1,).
        tables: of the attention and of the competition.
        tile: slots in a tile, a power of two.

    Returns:
        (S, K).

    Raises:
        ValueError: if the tensors do not fit.
        RuntimeError: if derivatives in forward mode are asked for, or in the backward a
            gradient of a table or a second derivative.
    """
    inputs = (bias, query, key, strength)
    _check(*inputs, scalars, tile_row, tile_ptr, tables, tile)
    refuse_forward_mode(*inputs, *() if scalars is None else (scalars,))
    return ops.edge_weights(
        *inputs,
        scalars,
        tile_row,
        tile_ptr,
        tables.null,
        tables.competition,
        tables.competition_bias,
        tables.norm_eps,
        tile,
    )[0]


def _check(bias, query, key, strength, scalars, tile_row, tile_ptr, tables, tile) -> None:
    """Raise unless dtypes and shapes are those of ``edge_weights``."""
    n_slots, width = key.shape
    fits = {
        "bias": (bias, (n_slots, len(tables.null))),
        "query": (query, (len(tile_ptr) - 1, width)),
        "strength": (strength, (n_slots,)),
    }
    if (scalars is None) != (tables.competition is None):
        raise ValueError("scalars and a table of the competition belong together")
    if scalars is not None:
        fits["scalars"] = (scalars, (n_slots, width))
    for name, (tensor, shape) in {"key": (key, key.shape), **fits}.items():
        if tensor.dtype != torch.float32 or tensor.shape != shape:
            raise ValueError(
                f"{name} must be float32 {tuple(shape)}, not {tensor.dtype} "
                f"{tuple(tensor.shape)}"
            )
    if n_slots != tile * len(tile_row):
        raise ValueError(f"{n_slots} slots are not {len(tile_row)} tiles of {tile}")
