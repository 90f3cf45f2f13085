"""The product of two fields on a grid as an operator of PyTorch; first derivatives only.

It is opaque to tracing, so that a graph traced for few nodes runs any number of them. It
does not write to its inputs, and its results are contiguous.
"""

import torch
import triton
from torch import Tensor

from ..derivatives import refuse_forward_mode
from ..launch import launch
from ..requirements import Requirements
from .kernels import product_backward_kernel, product_kernel
from .launch import MOST_COEFFICIENTS, launch_for
from .matrices import GridMatrices

__all__ = ["grid_product"]

_TENSORS = Requirements(
    "grid_product",
    left="float32 (B, K, C)",
    right="float32 (B, K, C)",
    to_grid="any (2, parts, G, k), contiguous",
    from_grid="any (2, parts, k, G), contiguous",
)


def grid_product(left: Tensor, right: Tensor, matrices: GridMatrices) -> Tensor:
    """``analysis @ ((synthesis @ left) * (synthesis @ right))``, not storing the grid.

    Args:
        left: field of coefficients, (B, K, C), float32, on a CUDA device.
        right: the other, alike.
        matrices: of the grid; K at most 80.

    Returns:
        (B, K, C).

    Raises:
        ValueError: if the kernels cannot run on these tensors.
        RuntimeError: if derivatives in forward mode are asked for, or in the backward a
            gradient of a matrix or a second derivative.
    """
    tables = (matrices.to_grid, matrices.from_grid)
    n_points, n_coefficients = matrices.synthesis.shape
    _TENSORS.check(left, right, *tables, K=n_coefficients)
    if n_coefficients > MOST_COEFFICIENTS:
        raise ValueError(
            f"grid_product takes at most {MOST_COEFFICIENTS} coefficients, not "
            f'{n_coefficients}; use kernels="torch"'
        )
    refuse_forward_mode(left, right)
    return _product(left, right, *tables, n_points, n_coefficients, matrices.precision)


@torch.library.custom_op("dp_calc::grid_product", mutates_args=())
def _product(
    left: Tensor,
    right: Tensor,
    to_grid: Tensor,
    from_grid: Tensor,
    n_points: int,
    n_coefficients: int,
    precision: str,
) -> Tensor:
    """See ``grid_product``; the tables as in ``GridMatrices``."""
    left, right = left.contiguous(), right.contiguous()
    out = torch.empty_like(left)
    if out.numel():
        programs, sizes = _launch(left, to_grid, n_points, precision)
        launch(
            product_kernel,
            programs,
            left,
            right,
            to_grid[0],
            from_grid[0],
            out,
            _rows(left),
            **sizes,
        )
    return out


@torch.library.custom_op("dp_calc::grid_product_backward", mutates_args=())
def _product_backward(
    grad: Tensor,
    left: Tensor,
    right: Tensor,
    to_grid: Tensor,
    from_grid: Tensor,
    n_points: int,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """Gradients of ``left`` and of ``right``."""
    grad, left, right = grad.contiguous(), left.contiguous(), right.contiguous()
    of_left, of_right = torch.empty_like(left), torch.empty_like(left)
    if left.numel():
        programs, sizes = _launch(left, to_grid, n_points, precision)
        launch(
            product_backward_kernel,
            programs,
            grad,
            left,
            right,
            *to_grid,
            from_grid[1],
            of_left,
            of_right,
            _rows(left),
            **sizes,
        )
    return of_left, of_right


@_product.register_fake
def _(left, right, to_grid, from_grid, n_points, n_coefficients, precision):
    return left.new_empty(left.shape)


@_product_backward.register_fake
def _(grad, left, right, to_grid, from_grid, n_points, precision):
    return left.new_empty(left.shape), left.new_empty(left.shape)


def _rows(field: Tensor) -> int:
    return field.shape[0] * field.shape[2]


def _launch(
    field: Tensor, to_grid: Tensor, n_points: int, precision: str
) -> tuple[tuple[int], dict]:
    n_coefficients = field.shape[1]
    launch = launch_for(n_coefficients)
    left_over = (n_coefficients - 1) % launch.piece + 1
    sizes = {
        "G_PITCH": to_grid.shape[-2],
        "K_PITCH": to_grid.shape[-1],
        "POINTS": n_points,
        "COEFFICIENTS": n_coefficients,
        "CHANNELS": field.shape[2],
        "BLOCK": launch.rows,
        "POINT_BLOCK": launch.points,
        "PIECE": launch.piece,
        "LAST": max(16, triton.next_power_of_2(left_over)),  # the least that dot takes
        "PRECISION": precision,
        "num_warps": launch.warps,
        "num_stages": launch.stages,
    }
    return (triton.cdiv(_rows(field), launch.rows),), sizes


def _save(ctx, inputs, output):
    *tensors, ctx.n_points, _, ctx.precision = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx, grad):
    refuse_forward_mode(grad)
    if any(ctx.needs_input_grad[2:4]):  # they would be lost without a word
        raise RuntimeError(
            "the grid kernels give no gradient of the matrices of the grid; "
            'use kernels="torch"'
        )
    tensors = ctx.saved_tensors
    gradients = _product_backward(grad, *tensors, ctx.n_points, ctx.precision)
    return *gradients, *[None] * 5


def _refuse_second(ctx, *grads):
    raise RuntimeError(
        'the grid kernels give first derivatives only; use kernels="torch"'
    )


_product.register_autograd(_backward, setup_context=_save)
_product_backward.register_autograd(_refuse_second)
