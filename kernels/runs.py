"""Sums and maxima of runs of rows on Triton: for CUDA devices."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import launch

__all__ = ["largest_of_runs", "sum_runs"]

_BLOCK = 1024
"""Numbers that a warp reads at a time."""


@torch.library.custom_op("dp_calc::sum_runs", mutates_args=())
def sum_runs(values: Tensor, order: Tensor, ptr: Tensor) -> Tensor:
    """Sum rows of ``values`` in runs of ``order``, each in a fixed order.

    Args:
        values: (E, W), float32 or float64.
        order: row of each place in the runs, int64.
        ptr: start of each run in ``order`` and the end of the last, (N + 1,), int64.

    Returns:
        (N, W); an empty run is zero.
    """
    return _reduce(values, order, ptr, largest=False)


@torch.library.custom_op("dp_calc::largest_of_runs", mutates_args=())
def largest_of_runs(values: Tensor, order: Tensor, ptr: Tensor) -> Tensor:
    """The largest value of each column in each run; arguments as for ``sum_runs``.

    Returns:
        (N, W); an empty run has minus infinity.
    """
    return _reduce(values, order, ptr, largest=True)


@sum_runs.register_fake
@largest_of_runs.register_fake
def _(values, order, ptr):
    return values.new_empty(len(ptr) - 1, values.shape[1])


def _reduce(values: Tensor, order: Tensor, ptr: Tensor, largest: bool) -> Tensor:
    values = values.contiguous()
    n_runs, width = len(ptr) - 1, values.shape[1]
    out = values.new_empty(n_runs, width)
    if not out.numel():
        return out
    # With 128 neighbouring columns to a warp no sum crosses threads.
    columns = min(512, triton.next_power_of_2(width))
    warps = max(1, columns // 128)
    launch(
        runs_kernel,
        (n_runs, triton.cdiv(width, columns)),
        values,
        order,
        ptr,
        out,
        width,
        LARGEST=largest,
        COLUMNS=columns,
        ROWS=min(64, _BLOCK * warps // columns),
        num_warps=warps,
    )
    return out


@triton.jit
def runs_kernel(
    values,
    order,
    ptr,
    out,
    width,
    LARGEST: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The sum or the largest of one run in COLUMNS columns."""
    start: tl.constexpr = float("-inf") if LARGEST else 0.0
    run = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    end = tl.load(ptr + run + 1)
    total = tl.full((COLUMNS,), start, out.dtype.element_ty)
    for first in range(tl.load(ptr + run), end, ROWS):
        place = first + tl.arange(0, ROWS)
        row = tl.load(order + place, mask=place < end, other=0)
        block = tl.load(
            values + row[:, None] * width + column[None, :],
            mask=(place < end)[:, None] & inside[None, :],
            other=start,
        )
        if LARGEST:
            total = tl.maximum(total, tl.max(block, axis=0))
        else:
            total += tl.sum(block, axis=0)
    tl.store(out + run * width + column, total, mask=inside)
