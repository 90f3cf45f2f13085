"""The operators on Triton kernels, registered with PyTorch; first derivatives only.

They are opaque to tracing, do not write to their inputs and give contiguous results.
"""

import torch
import triton
from torch import Tensor

from ..derivatives import refuse_weights
from ..launch import launch
from .backward import add_tiles_kernel, weights_backward_kernel
from .kernels import logits_kernel, weights_kernel

__all__ = ["edge_weights", "edge_weights_backward"]

_BLOCK = 256
"""Slots of a row read at a time; a row has about as many or less."""

_WARPS = 4

_TILES = 64
"""Tiles of a row added at a time: those that no edge uses are all in one row."""

_COLUMNS = 64


@torch.library.custom_op("dp_calc::edge_weights", mutates_args=())
def edge_weights(
    bias: Tensor,
    query: Tensor,
    key: Tensor,
    strength: Tensor,
    scalars: Tensor | None,
    tile_row: Tensor,
    tile_ptr: Tensor,
    null: Tensor,
    competition: Tensor | None,
    competition_bias: Tensor | None,
    norm_eps: float | None,
    tile: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights; what its backward needs: ``roots`` and ``softmax`` of the kernels."""
    if bias.stride(1) != 1:  # a part of wider rows is read where it is
        bias = bias.contiguous()
    query, key, strength, scalars, tile_row, tile_ptr, null = _in_order(
        query, key, strength, scalars, tile_row, tile_ptr, null
    )
    competition, competition_bias = _in_order(competition, competition_bias)
    weights, roots, softmax = _new_results(bias, competition)
    if not len(key):
        return weights, roots, softmax
    logits, of_streams = torch.empty_like(weights), None if scalars is None else softmax
    sizes = _sizes(weights, competition, tile)
    launch(
        logits_kernel,
        (len(tile_row),),
        bias,
        query,
        key,
        scalars,
        competition,
        competition_bias,
        tile_row,
        logits,
        of_streams,
        bias.stride(0),
        norm_eps,
        CHANNELS=key.shape[1] // weights.shape[1],
        **sizes,
    )
    launch(
        weights_kernel,
        (len(tile_row),),
        logits,
        strength,
        of_streams,
        null,
        tile_row,
        tile_ptr,
        weights,
        roots,
        **sizes,
        **_row_sizes(weights),
    )
    return weights, roots, softmax


@edge_weights.register_fake
def _(bias, query, key, strength, scalars, a, b, null, competition, c, norm_eps, tile):
    return _new_results(bias, competition)


def _in_order(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    return tuple(x if x is None else x.contiguous() for x in tensors)


def _new_results(bias: Tensor, competition: Tensor | None) -> tuple[Tensor, ...]:
    n_slots, n_weights = bias.shape
    n_streams = 0 if competition is None else competition.shape[0]
    widths = (n_weights, n_weights, n_streams)
    return tuple(bias.new_empty(n_slots, width) for width in widths)


def _sizes(weights: Tensor, competition: Tensor | None, tile: int) -> dict:
    # Streams that do not compete are no different from heads.
    n_streams = 1 if competition is None else len(competition)
    return {
        "TILE": tile,
        "N_STREAMS": n_streams,
        "N_HEADS": weights.shape[1] // n_streams,
        "num_warps": _WARPS,
    }


def _row_sizes(weights: Tensor) -> dict:
    return {"COLUMNS": triton.next_power_of_2(weights.shape[1]), "BLOCK": _BLOCK}


@torch.library.custom_op("dp_calc::edge_weights_backward", mutates_args=())
def edge_weights_backward(
    grad: Tensor,
    weights: Tensor,
    roots: Tensor,
    softmax: Tensor,
    query: Tensor,
    key: Tensor,
    strength: Tensor,
    scalars: Tensor | None,
    tile_row: Tensor,
    tile_ptr: Tensor,
    competition: Tensor | None,
    norm_eps: float | None,
    tile: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of bias, query, key, strength, and of scalars, (0, H) for None."""
    grad, query, key, strength, scalars, tile_row, tile_ptr, competition = _in_order(
        grad, query, key, strength, scalars, tile_row, tile_ptr, competition
    )
    gradients = _new_gradients(grad, query, key, strength, scalars)
    of_bias, of_query, of_key, of_strength, of_scalars = gradients
    of_tiles = query.new_empty(len(tile_row), query.shape[1])
    if len(key):
        launch(
            weights_backward_kernel,
            (len(tile_row),),
            grad,
            weights,
            roots,
            None if scalars is None else softmax,
            query,
            key,
            strength,
            scalars,
            competition,
            tile_row,
            tile_ptr,
            of_bias,
            of_tiles,
            of_key,
            of_strength,
            None if scalars is None else of_scalars,
            norm_eps,
            CHANNELS=key.shape[1] // grad.shape[1],
            **_sizes(weights, competition, tile),
            **_row_sizes(weights),
        )
    if len(query):
        programs = (len(query), triton.cdiv(query.shape[1], _COLUMNS))
        launch(
            add_tiles_kernel,
            programs,
            of_tiles,
            tile_ptr,
            of_query,
            WIDTH=query.shape[1],
            BLOCK=_TILES,
            COLUMNS=_COLUMNS,
            num_warps=_WARPS,
        )
    return gradients


@edge_weights_backward.register_fake
def _(grad, w, r, s, query, key, strength, scalars, a, b, competition, norm_eps, tile):
    return _new_gradients(grad, query, key, strength, scalars)


def _new_gradients(grad, query, key, strength, scalars) -> tuple[Tensor, ...]:
    shapes = [x.shape for x in (grad, query, key, strength)]
    shapes.append((0, key.shape[1]) if scalars is None else scalars.shape)
    return tuple(key.new_empty(shape) for shape in shapes)


def _save(ctx, inputs, output):
    _, query, key, strength, scalars, tile_row, tile_ptr, _, competition, _, *numbers = (
        inputs
    )
    ctx.norm_eps, ctx.tile = numbers
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # or zeros the size of these are written in vain
    nodes = (query, key, strength, scalars, tile_row, tile_ptr, competition)
    ctx.save_for_backward(*output, *nodes)


def _backward(ctx, grad, of_roots, of_softmax):
    refuse_weights(ctx, (7, 8, 9))
    if grad is None:
        return (None,) * 12
    tensors = ctx.saved_tensors
    gradients = edge_weights_backward(grad, *tensors, ctx.norm_eps, ctx.tile)
    *others, of_scalars = gradients
    return *others, None if tensors[6] is None else of_scalars, *[None] * 7


edge_weights.register_autograd(_backward, setup_context=_save)
