"""Sums of runs of wide rows on Triton: what ``segment.py`` uses on CUDA devices."""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["sum_runs"]

_ROWS = 8
"""Rows read at a time."""


@torch.library.custom_op("dp_calc::sum_runs", mutates_args=())
def sum_runs(values: Tensor, order: Tensor, ptr: Tensor) -> Tensor:
    """Sum rows of ``values`` in runs of ``order``, each in that order.

    Args:
        values: (E, W), float32 or float64.
        order: row of each place in the runs, int64.
        ptr: start of each run in ``order`` and the end of the last, (N + 1,), int64.

    Returns:
        (N, W); an empty run is zero.
    """
    values = values.contiguous()
    n_runs, width = len(ptr) - 1, values.shape[1]
    out = values.new_empty(n_runs, width)
    if not out.numel():
        return out
    # A warp reads 128 neighbouring columns, so that no sum crosses threads.
    warps = min(4, max(1, triton.next_power_of_2(width) // 128))
    sum_runs_kernel[n_runs, triton.cdiv(width, 128 * warps)](
        values,
        order,
        ptr,
        out,
        width,
        COLUMNS=128 * warps,
        ROWS=_ROWS,
        num_warps=warps,
    )
    return out


@sum_runs.register_fake
def _(values, order, ptr):
    return values.new_empty(len(ptr) - 1, values.shape[1])


@triton.jit
def sum_runs_kernel(
    values, order, ptr, out, width, COLUMNS: tl.constexpr, ROWS: tl.constexpr
):
    """One run and COLUMNS columns."""
    run = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    end = tl.load(ptr + run + 1)
    total = tl.zeros((COLUMNS,), out.dtype.element_ty)
    for first in range(tl.load(ptr + run), end, ROWS):
        place = first + tl.arange(0, ROWS)
        row = tl.load(order + place, mask=place < end, other=0)
        block = tl.load(
            values + row[:, None] * width + column[None, :],
            mask=(place < end)[:, None] & inside[None, :],
            other=0.0,
        )
        total += tl.sum(block, axis=0)
    tl.store(out + run * width + column, total, mask=inside)
