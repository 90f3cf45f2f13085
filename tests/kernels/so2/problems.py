"""Random inputs of the operators, the float64 answers, and how far off a result is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from dp_calc.kernels.so2 import (
    Layout,
    StackWeights,
    mix,
    reference,
    rotate_in,
    stack_weights,
    tile_sum,
)
from torch import Tensor

TILE = 16


@dataclass(frozen=True)
class Problem:
    """Inputs of one operator that have a gradient, and cotangents of its results.

    Attributes:
        run: the operator, a function of the inputs that gives a tuple.
        exact: the same without kernels, of float64 inputs.
        inputs: float32.
        cotangents: one per result, float32.
    """

    run: Callable[..., tuple[Tensor, ...]]
    exact: Callable[..., tuple[Tensor, ...]]
    inputs: Sequence[Tensor]
    cotangents: Sequence[Tensor]

    def results(self) -> tuple[Tensor, ...]:
        """Results and the gradients of all inputs."""
        return with_gradients(self.run, self.inputs, self.cotangents)

    def expected(self) -> tuple[Tensor, ...]:
        """The same in float64 without kernels."""
        return with_gradients(
            self.exact,
            [x.double() for x in self.inputs],
            [x.double() for x in self.cotangents],
        )

    def map(self, change: Callable[[Tensor], Tensor]) -> "Problem":
        """With inputs and cotangents changed."""
        return replace(
            self,
            inputs=[change(x) for x in self.inputs],
            cotangents=[change(x) for x in self.cotangents],
        )


def with_gradients(function, inputs, cotangents) -> tuple[Tensor, ...]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    results = function(*leaves)
    gradients = torch.autograd.grad(results, leaves, cotangents)
    return *(x.detach() for x in results), *gradients


def rotate_in_problem(layout: Layout, n_edges, rank=1, scaled=True, device="cpu"):
    """``rotate_in`` for edges of a layout; ``rank`` 0 has factors per channel."""
    random = _Random(device)
    lmax, n_packed, width = layout.lmax, layout.n_packed, layout.width
    scale = random(rank, width) if scaled and rank else None
    exact_scale = None if scale is None else scale.double()
    n_factors = rank * (n_packed + lmax**2) if rank else (lmax + 1) * width
    return Problem(
        lambda *tensors: rotate_in(*tensors, scale, rank, layout.channels),
        lambda *tensors: reference.rotate_in(*tensors, exact_scale, rank),
        [
            random_frames(random, n_edges, n_packed),
            random(n_edges, n_factors + 3),  # more columns than are read
            random(n_edges, n_packed, width),
        ],
        [random(n_edges, layout.n_rows, width), random(n_edges, width)],
    )


def tile_sum_problem(layout: Layout, n_edges, n_heads=1, device="cpu") -> Problem:
    """``tile_sum`` for edges of a layout; ``n_heads`` weights for each stream."""
    random = _Random(device)
    n_rows, n_packed, width = layout.n_rows, layout.n_packed, layout.width
    return Problem(
        lambda *tensors: (tile_sum(*tensors, TILE),),
        lambda *tensors: (reference.tile_sum(*tensors, TILE),),
        [
            random_frames(random, n_edges, n_packed),
            random(n_edges, n_rows, width),
            random(n_edges, layout.n_focus * n_heads),
        ],
        [random(n_edges // TILE, n_packed, width)],
    )


def random_frames(random, n_edges: int, n_packed: int) -> Tensor:
    """Any numbers where frames have some: nothing for degree 0 in orders -1 and +1."""
    frames = random(n_edges, 3, n_packed)
    frames[:, 1:, 0] = 0
    return frames


def mix_problem(
    layout: Layout, n_edges, precision="ieee", cohort=0, n_layers=2, device="cpu"
) -> Problem:
    """``mix`` for edges of a layout."""
    random = _Random(device)
    weights, exact = random_weights(layout, precision, n_layers, device)
    shape = (n_edges, layout.n_rows, layout.width)
    return Problem(
        lambda rows: (mix(rows, weights, cohort),),
        lambda rows: (reference.mix(rows, exact),),
        [random(*shape)],
        [random(*shape)],
    )


def random_weights(
    layout: Layout, precision: str, n_layers=2, device="cpu"
) -> tuple[StackWeights, StackWeights]:
    """The same matrices as the kernels read them, and in float64."""
    random = _Random(device, seed=7)
    focus, channels = layout.n_focus, layout.channels
    shapes = [[(focus, n, n)] * n_layers for n in layout.sizes]
    shapes.append([(focus, channels, layout.lmax * channels)] * (n_layers - 1))
    tables = [[random(*s) / s[1] ** 0.5 for s in each] for each in shapes]
    exact = [[x.double() for x in each] for each in tables]
    return stack_weights(layout, precision, *tables), stack_weights(
        layout, "ieee", *exact
    )


def deviation(result: Tensor, expected: Tensor) -> float:
    """Largest difference relative to the largest number."""
    assert result.shape == expected.shape
    assert result.dtype == torch.float32
    assert result.is_contiguous()
    if not expected.numel():
        return 0.0
    return ((result.double() - expected).abs().max() / expected.abs().max()).item()


class _Random:
    """Draws of normal numbers, the same on every device."""

    def __init__(self, device: str, seed: int = 3):
        self._device = device
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator).to(self._device)
