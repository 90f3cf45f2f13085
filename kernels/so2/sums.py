"""Rows of the edges rotated back, weighted and summed over tiles of edges."""

import triton
import triton.language as tl

__all__ = ["tile_sum_backward_kernel", "tile_sum_kernel"]


@triton.jit
def tile_sum_kernel(
    frames,
    rows,
    weight,
    out,
    TILE: tl.constexpr,
    LMAX: tl.constexpr,
    N_FOCUS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PACKED: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Rows turned back, weighted and summed over a tile, see ``reference.tile_sum``.

    A program does one tile and stream. PACKED is D rounded up to a power of two; BLOCK
    rows are summed at a time.
    """
    tile = tl.program_id(0).to(tl.int64)
    focus = tl.program_id(1)
    N_ROWS: tl.constexpr = 3 * LMAX + 1
    N_PACKED: tl.constexpr = (LMAX + 1) * (LMAX + 1)
    WIDTH: tl.constexpr = N_FOCUS * CHANNELS
    packed = tl.arange(0, PACKED)
    channel = focus * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros((PACKED, CHANNELS), tl.float32)
    for start in range(0, TILE * N_ROWS, BLOCK):
        row = start + tl.arange(0, BLOCK)
        inside = row < TILE * N_ROWS
        at = tile * (TILE * N_ROWS) + row
        edge = tile * TILE + row // N_ROWS
        entry, exists = _entries(row, edge, packed, inside, LMAX)
        turned = tl.load(frames + tl.trans(entry), mask=tl.trans(exists), other=0.0)
        values = tl.load(
            rows + at[:, None] * WIDTH + channel[None, :],
            mask=inside[:, None],
            other=0.0,
        )
        share = tl.load(weight + edge * N_FOCUS + focus, mask=inside, other=0.0)
        total = tl.dot(turned, values * share[:, None], total, input_precision=PRECISION)
    target = out + (tile * N_PACKED + packed[:, None]) * WIDTH + channel[None, :]
    tl.store(target, total, mask=(packed < N_PACKED)[:, None])


@triton.jit
def tile_sum_backward_kernel(
    grad,
    frames,
    rows,
    weight,
    of_frames,
    of_rows,
    of_weight,
    TILE: tl.constexpr,
    LMAX: tl.constexpr,
    N_FOCUS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PACKED: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gradients of the sum above for one tile.

    ``of_weight`` is (E, R, F), the part of each row.
    """
    tile = tl.program_id(0).to(tl.int64)
    N_ROWS: tl.constexpr = 3 * LMAX + 1
    N_PACKED: tl.constexpr = (LMAX + 1) * (LMAX + 1)
    WIDTH: tl.constexpr = N_FOCUS * CHANNELS
    packed = tl.arange(0, PACKED)
    for start in range(0, TILE * N_ROWS, BLOCK):
        row = start + tl.arange(0, BLOCK)
        inside = row < TILE * N_ROWS
        at = tile * (TILE * N_ROWS) + row
        edge = tile * TILE + row // N_ROWS
        entry, exists = _entries(row, edge, packed, inside, LMAX)
        turned = tl.load(frames + entry, mask=exists, other=0.0)
        of_frame = tl.zeros((BLOCK, PACKED), tl.float32)
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
            tl.store(of_rows + at_row, local * share[:, None], mask=inside[:, None])
            product = tl.sum(local * values, axis=1)
            tl.store(of_weight + at * N_FOCUS + focus, product, mask=inside)
            values = values * share[:, None]
            of_frame = tl.dot(
                values, tl.trans(pulled), of_frame, input_precision=PRECISION
            )
        tl.store(of_frames + entry, of_frame, mask=exists)


@triton.jit
def _entries(row, edge, packed, inside, LMAX: tl.constexpr):
    """Where the frames have the entry of a row and packed column, and if they do."""
    N_PACKED: tl.constexpr = (LMAX + 1) * (LMAX + 1)
    place = row % (3 * LMAX + 1)
    order = (place > LMAX).to(tl.int32) + (place > 2 * LMAX).to(tl.int32)
    degree = place - order * LMAX
    of_column = tl.zeros_like(packed)
    for l in tl.static_range(1, LMAX + 1):
        of_column += (packed >= l * l).to(tl.int32)
    exists = inside[:, None] & (packed < N_PACKED)[None, :]
    exists &= degree[:, None] == of_column[None, :]
    return (edge * 3 + order)[:, None] * N_PACKED + packed[None, :], exists
