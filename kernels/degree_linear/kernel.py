"""The kernel: rows of one degree times the matrix of that degree."""

import triton
import triton.language as tl

from ..products import multiply

__all__ = ["degree_linear_kernel"]


@triton.jit
def degree_linear_kernel(
    x,
    weight,
    out,
    n_nodes,
    part_size,
    N_PACKED: tl.constexpr,
    N_IN: tl.constexpr,
    N_OUT: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """out[n, d, o] = sum_i x[n, d, i] weight[degree(d), i, o].

    A program does BLOCK rows of one degree and COLUMNS columns.
    """
    degree = tl.program_id(2)
    n_orders = 2 * degree + 1
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    n_rows = n_nodes.to(tl.int64) * n_orders
    if tl.program_id(0).to(tl.int64) * BLOCK < n_rows:
        real = (row < n_rows)[:, None]
        packed = row // n_orders * N_PACKED + degree * degree + row % n_orders
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        total = tl.zeros((BLOCK, COLUMNS), tl.float32)
        for start in range(0, N_IN, DEPTH):
            k = start + tl.arange(0, DEPTH)
            values = tl.load(
                x + packed[:, None] * N_IN + k[None, :], mask=real, other=0.0
            )
            at = (degree * N_IN + k)[:, None] * N_OUT + column
            total = multiply(values, weight, at, part_size, total, PRECISION)
        tl.store(out + packed[:, None] * N_OUT + column, total, mask=real)
