"""The operator as a model calls it: first derivatives by the edge vectors."""

import torch
import triton
from torch import Tensor

from ..derivatives import refuse_forward_mode, refuse_weights
from ..launch import launch
from ..requirements import Requirements
from .kernels import frames_backward_kernel, frames_kernel
from .tables import FrameTables

__all__ = ["FrameTables", "edge_frames"]

_BLOCK = 32
_WARPS = 4

_TENSORS = Requirements(
    "edge_frames",
    vec="float32/float64 (E, 3)",
    powers="int32 (3, M), contiguous",
    coefficients="float32 (4, M, D), contiguous",
    step="float32 (D,), contiguous",
)


def edge_frames(vec: Tensor, tables: FrameTables) -> Tensor:
    """Rows of the Wigner matrices that take edges to their frames, orders up to one.

    Entry [e, k, (l, m')] is ``D^l[m, m']`` with m = 0, -1, +1 for k = 0, 1, 2; zero for
    l = 0 and m other than 0. The frame is the smallest rotation of the direction to z.
    The derivative leaves out the turn about the edge, on which no energy depends.

    Args:
        vec: edge vectors in Å, (E, 3), float32 or float64.
        tables: of the harmonics, float32.

    Returns:
        float32, (E, 3, D).

    Raises:
        ValueError: the tensors do not fit.
        RuntimeError: derivatives in forward mode are asked for.
    """
    _TENSORS.check(vec, tables.powers, tables.coefficients, tables.step)
    refuse_forward_mode(vec)
    return _edge_frames(vec, tables.powers, tables.coefficients, tables.step, tables.eps)


@torch.library.custom_op("dp_calc::edge_frames", mutates_args=())
def _edge_frames(
    vec: Tensor, powers: Tensor, coefficients: Tensor, step: Tensor, eps: float
) -> Tensor:
    vec = vec.contiguous()
    frames = coefficients.new_empty(len(vec), 3, len(step))
    if len(vec):
        launch(
            frames_kernel,
            (triton.cdiv(len(vec), _BLOCK),),
            vec,
            powers,
            coefficients,
            step,
            frames,
            len(vec),
            eps**2,
            **_sizes(powers, step),
        )
    return frames


@_edge_frames.register_fake
def _(vec, powers, coefficients, step, eps):
    return coefficients.new_empty(vec.shape[0], 3, step.shape[0])


@torch.library.custom_op("dp_calc::edge_frames_backward", mutates_args=())
def _edge_frames_backward(
    grad: Tensor,
    vec: Tensor,
    powers: Tensor,
    coefficients: Tensor,
    step: Tensor,
    eps: float,
) -> Tensor:
    grad, vec = grad.contiguous(), vec.contiguous()
    of_vec = torch.empty_like(vec)
    if len(vec):
        launch(
            frames_backward_kernel,
            (triton.cdiv(len(vec), _BLOCK),),
            vec,
            powers,
            coefficients,
            step,
            grad,
            of_vec,
            len(vec),
            eps**2,
            **_sizes(powers, step),
        )
    return of_vec


@_edge_frames_backward.register_fake
def _(grad, vec, powers, coefficients, step, eps):
    return vec.new_empty(vec.shape)


def _sizes(powers: Tensor, step: Tensor) -> dict:
    n_monomials, n_packed = powers.shape[1], len(step)
    return {
        "LMAX": round(n_packed**0.5) - 1,
        "N_MONOMIALS": n_monomials,
        "MONOMIALS": max(16, triton.next_power_of_2(n_monomials)),
        "PACKED": max(16, triton.next_power_of_2(n_packed)),
        "BLOCK": _BLOCK,
        "num_warps": _WARPS,
    }


def _save(ctx, inputs, output):
    vec, powers, coefficients, step, ctx.eps = inputs
    ctx.save_for_backward(vec, powers, coefficients, step)


def _backward(ctx, grad):
    refuse_weights(ctx, (1, 2, 3))
    of_vec = _edge_frames_backward(grad, *ctx.saved_tensors, ctx.eps)
    return of_vec, None, None, None, None


_edge_frames.register_autograd(_backward, setup_context=_save)
