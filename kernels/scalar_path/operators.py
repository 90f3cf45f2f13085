"""The operator as a model calls it: first derivatives by all that it reads."""

import torch
import triton
from torch import Tensor

from ..derivatives import refuse_forward_mode
from ..launch import launch
from ..requirements import Requirements
from .kernels import scalar_path_backward_kernel, scalar_path_kernel

__all__ = ["scalar_path"]

_BLOCK = 16
"""Rows of coefficients at a time."""

_TENSORS = Requirements(
    "scalar_path",
    product="float32 (B, R, K, C)",
    scalars="float32 (B, S)",
    gate="float32 (B, C)",
)


def scalar_path(product: Tensor, scalars: Tensor, gate: Tensor) -> Tensor:
    """Gate every coefficient; add ``silu(left) * right`` to row 0 of frame 0.

    Args:
        product: float32, (B, R, K, C).
        scalars: left and right, (B, 2 C).
        gate: before the sigmoid, (B, C).

    Returns:
        (B, R, K, C).

    Raises:
        ValueError: the tensors do not fit.
        RuntimeError: derivatives in forward mode are asked for.
    """
    sizes = _TENSORS.check(product, scalars, gate)
    if sizes["S"] != 2 * sizes["C"]:
        raise ValueError(
            f"scalar_path: scalars must be float32 (B, 2 C) with C = {sizes['C']}, not "
            f"{tuple(scalars.shape)}"
        )
    refuse_forward_mode(product, scalars, gate)
    return _scalar_path(product, scalars, gate)


@torch.library.custom_op("dp_calc::scalar_path", mutates_args=())
def _scalar_path(product: Tensor, scalars: Tensor, gate: Tensor) -> Tensor:
    product, scalars, gate = (x.contiguous() for x in (product, scalars, gate))
    out = torch.empty_like(product)
    if out.numel():
        tensors = (product, scalars, gate, out)
        launch(scalar_path_kernel, (len(product),), *tensors, **_sizes(product))
    return out


@_scalar_path.register_fake
def _(product, scalars, gate):
    return product.new_empty(product.shape)


@torch.library.custom_op("dp_calc::scalar_path_backward", mutates_args=())
def _scalar_path_backward(
    grad: Tensor, product: Tensor, scalars: Tensor, gate: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    read = [x.contiguous() for x in (grad, product, scalars, gate)]
    written = tuple(torch.empty_like(x) for x in read[1:])
    if product.numel():
        launch(
            scalar_path_backward_kernel,
            (len(product),),
            *read,
            *written,
            **_sizes(product),
        )
    return written


@_scalar_path_backward.register_fake
def _(grad, product, scalars, gate):
    return tuple(x.new_empty(x.shape) for x in (product, scalars, gate))


def _sizes(product: Tensor) -> dict:
    n_channels = product.shape[3]
    return {
        "N_ROWS": product.shape[1] * product.shape[2],
        "N_CHANNELS": n_channels,
        "CHANNELS": triton.next_power_of_2(n_channels),
        "BLOCK": _BLOCK,
    }


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _pull(ctx, grad):
    return _scalar_path_backward(grad, *ctx.saved_tensors)


_scalar_path.register_autograd(_pull, setup_context=_save)
