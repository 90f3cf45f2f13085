"""A comparison with plain PyTorch in float64, for a device that is new to the kernels."""

import torch
from torch import Tensor

from . import operators, reference
from .weights import StackWeights, stack_weights

__all__ = ["largest_error"]

_TILE = 16
_EDGES = 8 * _TILE  # more than one program of every kernel


def largest_error(
    weights: StackWeights, order_0: Tensor, order_1: Tensor, gate: Tensor
) -> float:
    """Run all kernels forward and backward on random rows.

    Args:
        weights: of a stack, on the device in question.
        order_0: the matrices of order 0 that ``weights`` were made of, (layers, F, n, n).
        order_1: those of orders -1 and +1, (layers, F, m, m).
        gate: those of the gates, (layers - 1, F, C, L C).

    Returns:
        Largest difference from float64, of results and gradients, each relative to its
        largest entry; NaN where the kernels give any.
    """
    exact = stack_weights(
        weights.layout,
        "ieee",
        *([x.double() for x in matrices] for matrices in (order_0, order_1, gate)),
    )
    *inputs, scale = _random_inputs(weights)
    exact_scale = scale.double()

    def on_kernels(frames, factors, source, weight):
        channels = weights.layout.channels
        rows, first = operators.rotate_in(frames, factors, source, scale, 1, channels)
        rows = operators.mix(rows, weights, cohort_edges=0)
        return operators.tile_sum(frames, rows, weight, _TILE), first

    def in_float64(frames, factors, source, weight):
        rows, first = reference.rotate_in(frames, factors, source, exact_scale, 1)
        rows = reference.mix(rows, exact)
        return reference.tile_sum(frames, rows, weight, _TILE), first

    results = _with_gradients(on_kernels, inputs)
    right = _with_gradients(in_float64, [x.double() for x in inputs])
    errors = [
        (a - b).abs().max() / b.abs().max() for a, b in zip(results, right, strict=True)
    ]
    return float(torch.stack(errors).max())


def _random_inputs(weights: StackWeights) -> list[Tensor]:
    layout, device = weights.layout, weights.order_0.device
    generator = torch.Generator().manual_seed(0)
    shapes = [
        (_EDGES, 3, layout.n_packed),
        # As wide as a model has them, for which another kernel would be compiled.
        (_EDGES, -(-(layout.n_packed + layout.lmax**2 + 1) // 16) * 16),
        (_EDGES, layout.n_packed, layout.width),
        (_EDGES, layout.n_focus),
        (1, layout.width),
    ]
    return [torch.randn(s, generator=generator).to(device) for s in shapes]


def _with_gradients(function, inputs: list[Tensor]) -> list[Tensor]:
    """Results of a function, and the gradients of the sum of their squares."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in inputs]
        results = function(*leaves)
        loss = sum(x.square().sum() for x in results)
        gradients = torch.autograd.grad(loss, leaves)
    return [x.detach() for x in (*results, *gradients)]
