"""The operators as a model calls them: first derivatives by what is normed."""

import torch
import triton
from torch import Tensor

from ..derivatives import refuse_forward_mode, refuse_weights
from ..launch import launch
from ..requirements import Requirements
from .kernels import (
    balanced_norm_backward_kernel,
    balanced_norm_kernel,
    stream_norm_backward_kernel,
    stream_norm_kernel,
)

__all__ = ["balanced_norm", "stream_norm"]

_BLOCK = 16
"""Rows of a program, where it norms each by itself."""

_BALANCED = Requirements(
    "balanced_norm",
    x="float32 (N, D, C)",
    balance="float32 (D,), contiguous",
    scale="float32 (D, C), contiguous",
    bias="float32 (1, C), contiguous",
)
_STREAM = Requirements(
    "stream_norm", x="float32 (F, B, C)", scale="float32 (F, C), contiguous"
)


def balanced_norm(
    x: Tensor, balance: Tensor, scale: Tensor, bias: Tensor, eps: float
) -> Tensor:
    """Centre row 0, divide by the balanced norm of all rows, scale, shift row 0.

    Args:
        x: float32, (N, D, C), the scalar row first.
        balance: weight of each row in the norm, (D,).
        scale: gain of each row and channel, (D, C).
        bias: added to the scalar row, (1, C).
        eps: floor of the squared norm.

    Returns:
        (N, D, C).

    Raises:
        ValueError: the tensors do not fit.
        RuntimeError: derivatives in forward mode are asked for.
    """
    _BALANCED.check(x, balance, scale, bias)
    refuse_forward_mode(x)
    return _balanced_norm(x, balance, scale, bias, eps)


def stream_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * scale`` over the last axis.

    Args:
        x: float32, (F, B, C).
        scale: gain of each stream and channel, (F, C).
        eps: floor of the mean square.

    Returns:
        (F, B, C), contiguous.

    Raises:
        ValueError: the tensors do not fit.
        RuntimeError: derivatives in forward mode are asked for.
    """
    _STREAM.check(x, scale)
    refuse_forward_mode(x)
    return _stream_norm(x, scale, eps)


@torch.library.custom_op("dp_calc::balanced_norm", mutates_args=())
def _balanced_norm(
    x: Tensor, balance: Tensor, scale: Tensor, bias: Tensor, eps: float
) -> Tensor:
    x = _with_whole_atoms(x)
    out = x.new_empty(x.shape)
    if out.numel():
        tensors = (x, balance, scale, bias, out)
        launch(balanced_norm_kernel, (len(x),), *tensors, eps, x.stride(0), **_sizes(x))
    return out


@_balanced_norm.register_fake
def _(x, balance, scale, bias, eps):
    return x.new_empty(x.shape)


@torch.library.custom_op("dp_calc::balanced_norm_backward", mutates_args=())
def _balanced_norm_backward(
    grad: Tensor, x: Tensor, balance: Tensor, scale: Tensor, eps: float
) -> Tensor:
    x = _with_whole_atoms(x)
    out = x.new_empty(x.shape)
    if out.numel():
        tensors = (grad.contiguous(), x, balance, scale, out)
        sizes = _sizes(x)
        launch(
            balanced_norm_backward_kernel,
            (len(x),),
            *tensors,
            eps,
            x.stride(0),
            **sizes,
        )
    return out


@_balanced_norm_backward.register_fake
def _(grad, x, balance, scale, eps):
    return x.new_empty(x.shape)


def _with_whole_atoms(x: Tensor) -> Tensor:
    """Rows of atoms that are contiguous each, as some of the rows of a state are."""
    whole = x.stride(1) == x.shape[2] and x.stride(2) == 1
    return x if whole else x.contiguous()


def _sizes(x: Tensor) -> dict:
    n_rows, n_channels = x.shape[1:]
    return {
        "N_ROWS": n_rows,
        "N_CHANNELS": n_channels,
        "ROWS": triton.next_power_of_2(n_rows),
        "CHANNELS": triton.next_power_of_2(n_channels),
    }


def _save_balanced(ctx, inputs, output):
    x, balance, scale, _, ctx.eps = inputs
    ctx.save_for_backward(x, balance, scale)


def _pull_balanced(ctx, grad):
    refuse_weights(ctx, (1, 2, 3))
    of_x = _balanced_norm_backward(grad, *ctx.saved_tensors, ctx.eps)
    return of_x, None, None, None, None


@torch.library.custom_op("dp_calc::stream_norm", mutates_args=())
def _stream_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    x = _with_whole_rows(x)
    out = x.new_empty(x.shape)
    if out.numel():
        _launch_stream(stream_norm_kernel, x, scale, out, eps)
    return out


@_stream_norm.register_fake
def _(x, scale, eps):
    return x.new_empty(x.shape)


@torch.library.custom_op("dp_calc::stream_norm_backward", mutates_args=())
def _stream_norm_backward(grad: Tensor, x: Tensor, scale: Tensor, eps: float) -> Tensor:
    x = _with_whole_rows(x)
    out = x.new_empty(x.shape)
    if out.numel():
        _launch_stream(stream_norm_backward_kernel, x, scale, out, eps, grad.contiguous())
    return out


@_stream_norm_backward.register_fake
def _(grad, x, scale, eps):
    return x.new_empty(x.shape)


def _with_whole_rows(x: Tensor) -> Tensor:
    return x if x.stride(2) == 1 else x.contiguous()


def _launch_stream(
    kernel, x: Tensor, scale: Tensor, out: Tensor, eps: float, *grad: Tensor
) -> None:
    n_streams, n_rows, n_channels = x.shape
    launch(
        kernel,
        (triton.cdiv(n_rows, _BLOCK), n_streams),
        *grad,
        x,
        scale,
        out,
        eps,
        n_rows,
        x.stride(0),
        x.stride(1),
        N_CHANNELS=n_channels,
        CHANNELS=triton.next_power_of_2(n_channels),
        BLOCK=_BLOCK,
    )


def _save_stream(ctx, inputs, output):
    x, scale, ctx.eps = inputs
    ctx.save_for_backward(x, scale)


def _pull_stream(ctx, grad):
    refuse_weights(ctx, (1,))
    return _stream_norm_backward(grad, *ctx.saved_tensors, ctx.eps), None, None


_balanced_norm.register_autograd(_pull_balanced, setup_context=_save_balanced)
_stream_norm.register_autograd(_pull_stream, setup_context=_save_stream)
