"""Rows of the edges rotated back, weighted and summed over tiles of edges."""

import triton
import triton.language as tl

__all__ = ["tile_sum_backward_kernel", "tile_sum_kernel"]


@triton.jit
def tile_sum_kernel(
    rotation,
    rows,
    weight,
    out,
    TILE: tl.constexpr,
    N_ROWS: tl.constexpr,
    N_PACKED: tl.constexpr,
    N_FOCUS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PACKED: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """out[t, d, c] = sum_{e in t, r} rotation[e, r, d] weight[e, f(c)] rows[e, r, c].

    A program does one tile and stream. PACKED is N_PACKED rounded up to a power of two;
    BLOCK rows are summed at a time.
    """
    tile = tl.program_id(0).to(tl.int64)
    focus = tl.program_id(1)
    WIDTH: tl.constexpr = N_FOCUS * CHANNELS
    packed = tl.arange(0, PACKED)
    channel = focus * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros((PACKED, CHANNELS), tl.float32)
    for start in range(0, TILE * N_ROWS, BLOCK):
        row = start + tl.arange(0, BLOCK)
        inside = row < TILE * N_ROWS
        at = tile * (TILE * N_ROWS) + row
        turned = tl.load(
            rotation + at[None, :] * N_PACKED + packed[:, None],
            mask=inside[None, :] & (packed < N_PACKED)[:, None],
            other=0.0,
        )
        values = tl.load(
            rows + at[:, None] * WIDTH + channel[None, :],
            mask=inside[:, None],
            other=0.0,
        )
        edge = tile * TILE + row // N_ROWS
        share = tl.load(weight + edge * N_FOCUS + focus, mask=inside, other=0.0)
        total = tl.dot(turned, values * share[:, None], total, input_precision=PRECISION)
    target = out + (tile * N_PACKED + packed[:, None]) * WIDTH + channel[None, :]
    tl.store(target, total, mask=(packed < N_PACKED)[:, None])


@triton.jit
def tile_sum_backward_kernel(
    grad,
    rotation,
    rows,
    weight,
    grad_rotation,
    grad_rows,
    grad_weight,
    TILE: tl.constexpr,
    N_ROWS: tl.constexpr,
    N_PACKED: tl.constexpr,
    N_FOCUS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PACKED: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gradients of the sum above for one tile.

    ``grad_weight`` is (E, R, F), the part of each row.
    """
    tile = tl.program_id(0).to(tl.int64)
    WIDTH: tl.constexpr = N_FOCUS * CHANNELS
    packed = tl.arange(0, PACKED)
    for start in range(0, TILE * N_ROWS, BLOCK):
        row = start + tl.arange(0, BLOCK)
        inside = row < TILE * N_ROWS
        at = tile * (TILE * N_ROWS) + row
        edge = tile * TILE + row // N_ROWS
        of_packed = inside[:, None] & (packed < N_PACKED)[None, :]
        at_packed = at[:, None] * N_PACKED + packed[None, :]
        turned = tl.load(rotation + at_packed, mask=of_packed, other=0.0)
        of_rotation = tl.zeros((BLOCK, PACKED), tl.float32)
        for focus in tl.static_range(N_FOCUS):
            channel = focus * CHANNELS + tl.arange(0, CHANNELS)
            pulled = tl.load(
                grad + (tile * N_PACKED + packed[:, None]) * WIDTH + channel[None, :],
                mask=(packed < N_PACKED)[:, None],
                other=0.0,
            )
            at_row = at[:, None] * WIDTH + channel[None, :]
            values = tl.load(rows + at_row, mask=inside[:, None], other=0.0)
            share = tl.load(weight + edge * N_FOCUS + focus, mask=inside, other=0.0)
            local = tl.dot(turned, pulled, input_precision=PRECISION)
            tl.store(grad_rows + at_row, local * share[:, None], mask=inside[:, None])
            of_weight = tl.sum(local * values, axis=1)
            tl.store(grad_weight + at * N_FOCUS + focus, of_weight, mask=inside)
            values = values * share[:, None]
            of_rotation = tl.dot(
                values, tl.trans(pulled), of_rotation, input_precision=PRECISION
            )
        tl.store(grad_rotation + at_packed, of_rotation, mask=of_packed)
