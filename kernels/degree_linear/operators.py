"""The operator as a model calls it: derivatives by the rows, none by the weights."""

import torch
import triton
from torch import Tensor

from ..derivatives import refuse_forward_mode, refuse_weights
from ..launch import launch
from ..requirements import Requirements
from .kernel import degree_linear_kernel

__all__ = ["degree_linear"]

_BLOCK = 64
_WARPS = 4

_TENSORS = Requirements(
    "degree_linear",
    x="float32 (N, D, i)",
    weight="any (parts, l, i, o), contiguous",
    weight_t="any (parts, l, o, i), contiguous",
)


def degree_linear(x: Tensor, weight: Tensor, weight_t: Tensor, precision: str) -> Tensor:
    """Map the packed rows of each degree by the matrix of that degree.

    Args:
        x: float32, (N, D, n_in), D = (L + 1)^2.
        weight: parts from ``products.split`` of (L + 1, n_in, n_out), both widths
            multiples of 16.
        weight_t: the same of the transposed matrices.
        precision: of the products.

    Returns:
        (N, D, n_out).

    Raises:
        ValueError: the tensors do not fit.
        RuntimeError: derivatives in forward mode are asked for.
    """
    sizes = _TENSORS.check(x, weight, weight_t)
    if sizes["D"] != sizes["l"] ** 2 or sizes["i"] % 16 or sizes["o"] % 16:
        raise ValueError(
            f"degree_linear: {sizes['l']} matrices of {sizes['i']} by {sizes['o']} must "
            f"be those of all degrees of {sizes['D']} rows, and multiples of 16"
        )
    refuse_forward_mode(x)
    return _degree_linear(x, weight, weight_t, precision)


@torch.library.custom_op("dp_calc::degree_linear", mutates_args=())
def _degree_linear(x: Tensor, weight: Tensor, weight_t: Tensor, precision: str) -> Tensor:
    x = x.contiguous()
    n_nodes, n_packed, n_in = x.shape
    n_degrees, n_out = weight.shape[1], weight.shape[3]
    out = x.new_empty(n_nodes, n_packed, n_out)
    if not n_nodes:
        return out
    columns = _divisor(n_out, 64)
    n_blocks = triton.cdiv(n_nodes * (2 * n_degrees - 1), _BLOCK)
    launch(
        degree_linear_kernel,
        (n_blocks, n_out // columns, n_degrees),
        x,
        weight,
        out,
        n_nodes,
        weight[0].numel(),
        N_PACKED=n_packed,
        N_IN=n_in,
        N_OUT=n_out,
        BLOCK=_BLOCK,
        DEPTH=_divisor(n_in, 32),
        COLUMNS=columns,
        PRECISION=precision,
        num_warps=_WARPS,
    )
    return out


@_degree_linear.register_fake
def _(x, weight, weight_t, precision):
    return x.new_empty(*x.shape[:2], weight.shape[3])


def _divisor(number: int, largest: int) -> int:
    """The largest power of two up to ``largest`` that divides a multiple of 16."""
    while number % largest:
        largest //= 2
    return largest


def _save(ctx, inputs, output):
    _, weight, weight_t, ctx.precision = inputs
    ctx.save_for_backward(weight, weight_t)


def _backward(ctx, grad):
    refuse_weights(ctx, (1, 2))
    weight, weight_t = ctx.saved_tensors
    # A linear map of the gradient, which can be differentiated again.
    return degree_linear(grad, weight_t, weight, ctx.precision), None, None, None


_degree_linear.register_autograd(_backward, setup_context=_save)
