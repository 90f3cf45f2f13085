"""The weights in plain PyTorch: any dtype and device, any derivative."""

import torch
from torch import Tensor

from .tables import FLOOR, MAX_EXPONENT, WeightTables

__all__ = ["edge_weights"]


def edge_weights(
    bias: Tensor,
    query: Tensor,
    key: Tensor,
    strength: Tensor,
    scalars: Tensor | None,
    tile_row: Tensor,
    tables: WeightTables,
    tile: int,
) -> Tensor:
    """As :func:`operators.edge_weights`; it has no use for ``tile_ptr``."""
    row = tile_row.repeat_interleave(tile)
    product = (query[row] * key).unflatten(1, (bias.shape[1], -1))
    logits = product.sum(-1) / product.shape[-1] ** 0.5 + bias
    weight = _normalise(logits, strength[:, None], row, len(query), tables.null)
    if scalars is None:
        return weight
    share = _shares(scalars, tables)
    return weight * share.repeat_interleave(weight.shape[1] // share.shape[1], dim=1)


def _normalise(
    logits: Tensor, strength: Tensor, row: Tensor, n_rows: int, null: Tensor
) -> Tensor:
    """``m / (null + sum of m)`` over the slots of each row, m = strength^2 e^logit."""
    real = strength > 0
    log_mass = logits + 2 * torch.where(real, strength, 1).log()
    log_mass = log_mass.masked_fill(~real, -torch.inf).detach()
    shift = null.log().expand(n_rows, -1)
    shift = shift.scatter_reduce(0, row[:, None].expand_as(log_mass), log_mass, "amax")
    half = (logits - shift[row]) / 2
    mass = (strength * half.clamp(max=MAX_EXPONENT).exp()).square()
    total = (null * (-shift).exp()).index_add(0, row, mass)
    return mass / total[row]


def _shares(scalars: Tensor, tables: WeightTables) -> Tensor:
    """Share of each stream, (S, F)."""
    streams = scalars.unflatten(1, tables.competition.shape)
    if tables.norm_eps is not None:
        mean = streams.square().mean(-1, keepdim=True)
        streams = streams * (mean + tables.norm_eps).rsqrt()
    logits = (streams * tables.competition).sum(-1)
    if tables.competition_bias is not None:
        logits = logits + tables.competition_bias
    return (1 - FLOOR) * logits.softmax(dim=1) + FLOOR / logits.shape[1]
