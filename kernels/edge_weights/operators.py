"""The operator as a model calls it: first derivatives by everything but the tables."""

from torch import Tensor

from ..derivatives import refuse_forward_mode
from ..requirements import Requirements
from . import ops
from .tables import WeightTables

__all__ = ["edge_weights"]

_TENSORS = Requirements(
    "edge_weights",
    key="float32 (S, H)",
    bias="float32 (S, K)",
    query="float32 (R, H)",
    strength="float32 (S,)",
    scalars="float32 (S, H)",
    tile_row="int64 (T,)",
    tile_ptr="int64 (P,)",
    null="float32 (K,)",
    competition="float32 (F, C)",
    competition_bias="float32 (F,)",
)


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
    if (scalars is None) != (tables.competition is None):
        raise ValueError("scalars and a table of the competition belong together")
    of_tables = (tables.null, tables.competition, tables.competition_bias)
    tensors = (key, bias, query, strength, scalars, tile_row, tile_ptr)
    sizes = _TENSORS.check(*tensors, *of_tables, R=len(tile_ptr) - 1)
    n_slots, n_tiles = sizes["S"], sizes["T"]
    if n_slots != tile * n_tiles:
        raise ValueError(f"{n_slots} slots are not {n_tiles} tiles of {tile}")
