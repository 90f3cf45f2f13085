"""The operators on Triton kernels, registered with PyTorch; first derivatives only.

Each is opaque to tracing, so that a graph traced for few edges runs any number of them.
None writes to its inputs; all results are contiguous, and float32 like the inputs.
"""

import torch
import triton
from torch import Tensor

from ..derivatives import refuse_weights
from ..launch import launch
from .configs import LAUNCH
from .layout import Layout
from .rows import rotate_in_backward_kernel, rotate_in_kernel
from .stack import mix_backward, mix_forward
from .sums import tile_sum_backward_kernel, tile_sum_kernel

__all__ = ["mix", "rotate_in", "tile_sum"]

_SUM_PRECISION = "tf32x3"


@torch.library.custom_op("dp_calc::so2_rotate_in", mutates_args=())
def rotate_in(
    frames: Tensor,
    factors: Tensor,
    source: Tensor,
    scale: Tensor | None,
    rank: int,
    channels: int,
) -> tuple[Tensor, Tensor]:
    """See ``reference.rotate_in``; ``channels`` is the width of a stream."""
    frames, factors, source = (x.contiguous() for x in (frames, factors, source))
    n_edges, n_packed, width = source.shape
    lmax = _lmax(n_packed)
    rows = source.new_empty(n_edges, 3 * lmax + 1, width)
    first = source.new_empty(n_edges, width)
    if n_edges:
        launch(
            rotate_in_kernel,
            (triton.cdiv(n_edges, LAUNCH.row_block), width // channels),
            frames,
            factors,
            source,
            scale,
            rows,
            first,
            n_edges,
            factors.shape[1],
            LMAX=lmax,
            RANK=rank,
            WIDTH=width,
            BLOCK=LAUNCH.row_block,
            CHANNELS=channels,
            num_warps=LAUNCH.row_warps,
        )
    return rows, first


@rotate_in.register_fake
def _(frames, factors, source, scale, rank, channels):
    n_edges, n_packed, width = source.shape
    rows = source.new_empty(n_edges, 3 * _lmax(n_packed) + 1, width)
    return rows, source.new_empty(n_edges, width)


@torch.library.custom_op("dp_calc::so2_rotate_in_backward", mutates_args=())
def rotate_in_backward(
    grad: Tensor,
    grad_first: Tensor,
    frames: Tensor,
    factors: Tensor,
    source: Tensor,
    scale: Tensor | None,
    rank: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``frames``, ``factors`` and ``source``."""
    grad, grad_first = grad.contiguous(), grad_first.contiguous()
    frames, factors, source = (x.contiguous() for x in (frames, factors, source))
    of_frames, of_source = torch.empty_like(frames), torch.empty_like(source)
    # Where each degree and channel has a factor, columns that are none stay zero.
    of_factors = (torch.empty_like if rank else torch.zeros_like)(factors)
    n_edges, n_packed, width = source.shape
    if n_edges:
        launch(
            rotate_in_backward_kernel,
            (triton.cdiv(n_edges, LAUNCH.row_block),),
            grad,
            grad_first,
            frames,
            factors,
            source,
            scale,
            of_frames,
            of_factors,
            of_source,
            n_edges,
            factors.shape[1],
            LMAX=_lmax(n_packed),
            RANK=rank,
            WIDTH=width,
            BLOCK=LAUNCH.row_block,
            CHANNELS=triton.next_power_of_2(width),
            COLUMNS=triton.next_power_of_2(factors.shape[1]),
            PACKED=triton.next_power_of_2(n_packed),
            num_warps=LAUNCH.row_warps,
        )
    return of_frames, of_factors, of_source


@rotate_in_backward.register_fake
def _(grad, grad_first, frames, factors, source, scale, rank):
    return tuple(x.new_empty(x.shape) for x in (frames, factors, source))


def _lmax(n_packed: int) -> int:
    return round(n_packed**0.5) - 1


def _save_rotate_in(ctx, inputs, output):
    *tensors, ctx.rank, _ = inputs
    ctx.save_for_backward(*tensors)


def _rotate_in_backward(ctx, grad, grad_first):
    refuse_weights(ctx, [3])
    tensors = ctx.saved_tensors
    gradients = rotate_in_backward(grad, grad_first, *tensors, ctx.rank)
    return *gradients, None, None, None


@torch.library.custom_op("dp_calc::so2_tile_sum", mutates_args=())
def tile_sum(frames: Tensor, rows: Tensor, weight: Tensor, tile: int) -> Tensor:
    """See ``reference.tile_sum``."""
    frames, rows, weight = (x.contiguous() for x in (frames, rows, weight))
    n_edges, n_packed = len(rows), frames.shape[2]
    out = rows.new_empty(n_edges // tile, n_packed, rows.shape[2])
    if n_edges:
        launch(
            tile_sum_kernel,
            (n_edges // tile, weight.shape[1]),
            frames,
            rows,
            weight,
            out,
            BLOCK=LAUNCH.sum_block,
            **_tile_sizes(frames, rows, weight, tile),
        )
    return out


@tile_sum.register_fake
def _(frames, rows, weight, tile):
    return rows.new_empty(len(rows) // tile, frames.shape[2], rows.shape[2])


@torch.library.custom_op("dp_calc::so2_tile_sum_backward", mutates_args=())
def tile_sum_backward(
    grad: Tensor, frames: Tensor, rows: Tensor, weight: Tensor, tile: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``frames`` and ``rows``; of ``weight`` per row, (E, R, F)."""
    grad, frames = grad.contiguous(), frames.contiguous()
    rows, weight = rows.contiguous(), weight.contiguous()
    # No row reads the entries of degree 0 in orders -1 and +1.
    of_frames, of_rows = torch.zeros_like(frames), torch.empty_like(rows)
    of_weight = weight.new_empty(*rows.shape[:2], weight.shape[1])
    if len(rows):
        launch(
            tile_sum_backward_kernel,
            (len(rows) // tile,),
            grad,
            frames,
            rows,
            weight,
            of_frames,
            of_rows,
            of_weight,
            BLOCK=LAUNCH.sum_backward_block,
            **_tile_sizes(frames, rows, weight, tile),
        )
    return of_frames, of_rows, of_weight


@tile_sum_backward.register_fake
def _(grad, frames, rows, weight, tile):
    of_weight = weight.new_empty(*rows.shape[:2], weight.shape[1])
    return frames.new_empty(frames.shape), rows.new_empty(rows.shape), of_weight


def _tile_sizes(frames, rows, weight, tile) -> dict:
    n_focus, n_packed = weight.shape[1], frames.shape[2]
    return {
        "TILE": tile,
        "LMAX": _lmax(n_packed),
        "N_FOCUS": n_focus,
        "CHANNELS": rows.shape[2] // n_focus,
        "PACKED": max(16, triton.next_power_of_2(n_packed)),
        "PRECISION": _SUM_PRECISION,
    }


def _save_tile_sum(ctx, inputs, output):
    *tensors, ctx.tile = inputs
    ctx.save_for_backward(*tensors)


def _tile_sum_backward(ctx, grad):
    of_frames, of_rows, of_weight = tile_sum_backward(grad, *ctx.saved_tensors, ctx.tile)
    return of_frames, of_rows, of_weight.sum(1), None


@torch.library.custom_op("dp_calc::so2_mix", mutates_args=())
def mix(
    rows: Tensor,
    order_0: Tensor,
    order_1: Tensor,
    gate: Tensor,
    order_0_t: Tensor,
    order_1_t: Tensor,
    gate_t: Tensor,
    n_focus: int,
    precision: str,
    cohort_edges: int,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """See ``stack.mix_forward``; the other matrices are for the backward."""
    layout = _layout(rows, n_focus)
    rows = rows.contiguous()
    return mix_forward(rows, order_0, order_1, gate, layout, precision, save)


@mix.register_fake
def _(rows, order_0, order_1, gate, a, b, c, n_focus, precision, cohort_edges, save):
    kept, layout = len(gate) if save else 0, _layout(rows, n_focus)
    gates = rows.new_empty(kept, len(rows), layout.lmax, layout.width)
    return rows.new_empty(rows.shape), rows.new_empty(kept, *rows.shape), gates


@torch.library.custom_op("dp_calc::so2_mix_backward", mutates_args=())
def mix_backward_op(
    grad: Tensor,
    mixed: Tensor,
    gates: Tensor,
    order_0_t: Tensor,
    order_1_t: Tensor,
    gate_t: Tensor,
    n_focus: int,
    precision: str,
    cohort_edges: int,
) -> Tensor:
    """See ``stack.mix_backward``."""
    layout, matrices = _layout(grad, n_focus), (order_0_t, order_1_t, gate_t)
    grad = grad.contiguous()
    return mix_backward(grad, mixed, gates, *matrices, layout, precision, cohort_edges)


@mix_backward_op.register_fake
def _(grad, mixed, gates, a, b, c, n_focus, precision, cohort_edges):
    return grad.new_empty(grad.shape)


def _layout(rows: Tensor, n_focus: int) -> Layout:
    return Layout((rows.shape[1] - 1) // 3, n_focus, rows.shape[2] // n_focus)


def _save_mix(ctx, inputs, output):
    _, *weights, ctx.n_focus, ctx.precision, ctx.cohort_edges, ctx.saved = inputs
    _, mixed, gates = output
    ctx.mark_non_differentiable(mixed, gates)
    ctx.set_materialize_grads(False)  # or zeros the size of both are written in vain
    ctx.save_for_backward(mixed, gates, *weights[3:])


def _mix_backward(ctx, grad, of_mixed, of_gates):
    refuse_weights(ctx, range(1, 7))
    if not ctx.saved:
        raise RuntimeError("so2_mix was run with save=False, so it has no backward")
    if grad is None:
        return (None,) * 11
    options = (ctx.n_focus, ctx.precision, ctx.cohort_edges)
    of_rows = mix_backward_op(grad, *ctx.saved_tensors, *options)
    return of_rows, *[None] * 10


rotate_in.register_autograd(_rotate_in_backward, setup_context=_save_rotate_in)
tile_sum.register_autograd(_tile_sum_backward, setup_context=_save_tile_sum)
mix.register_autograd(_mix_backward, setup_context=_save_mix)
