"""The operator as a model calls it: first derivatives by the edge vectors."""

import torch
import triton
from torch import Tensor

from ..derivatives import refuse_forward_mode, refuse_weights
from ..launch import launch
from ..requirements import Requirements
from .kernels import radial_backward_kernel, radial_kernel
from .tables import RadialTables

__all__ = ["RadialTables", "radial_features"]

_BLOCK = 32
_WARPS = 4
_COLUMNS = 16

_TENSORS = Requirements(
    "radial_features",
    vec="float32/float64 (E, 3)",
    frequencies="float32 (B,), contiguous",
    hidden="float32 (B, W), contiguous",
    hidden_bias="float32 (W,), contiguous",
    norm_scale="float32 (W,), contiguous",
    out="float32 (W, n), contiguous",
    out_bias="float32 (n,), contiguous",
)


def radial_features(vec: Tensor, tables: RadialTables) -> tuple[Tensor, Tensor]:
    """Radial network and envelope of edges.

    Args:
        vec: edge vectors in Å, (E, 3), float32 or float64.
        tables: of the network, float32.

    Returns:
        Features (E, n) and envelope (E,), float32.

    Raises:
        ValueError: the tensors do not fit.
        RuntimeError: derivatives in forward mode are asked for.
    """
    width = _TENSORS.check(vec, *tables.tensors)["n"]
    if width % _COLUMNS:
        raise ValueError(
            f"radial_features: the number of features must be a multiple of {_COLUMNS}, "
            f"not {width}"
        )
    refuse_forward_mode(vec)
    return _radial(vec, *tables.tensors, *tables.numbers)


@torch.library.custom_op("dp_calc::radial_features", mutates_args=())
def _radial(
    vec: Tensor,
    frequencies: Tensor,
    hidden: Tensor,
    hidden_bias: Tensor | None,
    norm_scale: Tensor | None,
    out: Tensor,
    out_bias: Tensor | None,
    floats: list[float],
    terms: list[int],
    vanishing: bool,
) -> tuple[Tensor, Tensor]:
    vec = vec.contiguous()
    features = out.new_empty(len(vec), out.shape[1])
    envelope = out.new_empty(len(vec))
    tables = (frequencies, hidden, hidden_bias, norm_scale, out, out_bias)
    numbers = (*floats, *terms, vanishing)
    _launch(radial_kernel, vec, tables, (features, envelope), numbers)
    return features, envelope


@_radial.register_fake
def _(vec, frequencies, hidden, hidden_bias, norm_scale, out, out_bias, f, t, v):
    n_edges = vec.shape[0]
    return out.new_empty(n_edges, out.shape[1]), out.new_empty(n_edges)


@torch.library.custom_op("dp_calc::radial_features_backward", mutates_args=())
def _radial_backward(
    grad: Tensor,
    grad_envelope: Tensor,
    vec: Tensor,
    frequencies: Tensor,
    hidden: Tensor,
    hidden_bias: Tensor | None,
    norm_scale: Tensor | None,
    out: Tensor,
    out_bias: Tensor | None,
    floats: list[float],
    terms: list[int],
    vanishing: bool,
) -> Tensor:
    grad, grad_envelope = grad.contiguous(), grad_envelope.contiguous()
    vec = vec.contiguous()
    of_vec = torch.empty_like(vec)
    tables = (frequencies, hidden, hidden_bias, norm_scale, out, out_bias)
    numbers = (*floats, *terms, vanishing)
    _launch(radial_backward_kernel, vec, tables, (grad, grad_envelope, of_vec), numbers)
    return of_vec


@_radial_backward.register_fake
def _(grad, grad_envelope, vec, frequencies, hidden, a, b, out, c, floats, terms, v):
    return vec.new_empty(vec.shape)


def _launch(kernel, vec: Tensor, tables, of_edges, numbers) -> None:
    """Run a kernel on all edges, if there are any; arguments in its order."""
    if not len(vec):
        return
    _, hidden, _, _, out, _ = tables
    n_basis, n_hidden = hidden.shape
    launch(
        kernel,
        (triton.cdiv(len(vec), _BLOCK),),
        vec,
        *tables,
        *of_edges,
        len(vec),
        *numbers,
        N_BASIS=n_basis,
        N_HIDDEN=n_hidden,
        N_OUT=out.shape[1],
        BASIS=max(16, triton.next_power_of_2(n_basis)),
        HIDDEN=max(16, triton.next_power_of_2(n_hidden)),
        COLUMNS=_COLUMNS,
        BLOCK=_BLOCK,
        num_warps=_WARPS,
    )


def _save(ctx, inputs, output):
    vec, *tables, ctx.floats, ctx.terms, ctx.vanishing = inputs
    ctx.save_for_backward(vec, *tables)


def _backward(ctx, grad, grad_envelope):
    refuse_weights(ctx, range(1, 7))
    numbers = (ctx.floats, ctx.terms, ctx.vanishing)
    of_vec = _radial_backward(grad, grad_envelope, *ctx.saved_tensors, *numbers)
    return of_vec, *[None] * 9


_radial.register_autograd(_backward, setup_context=_save)
