"""Small matrices of the edges times rows of channels: rotations in, and adjoints."""

import triton
import triton.language as tl

__all__ = ["apply_kernel", "outer_kernel"]


@triton.jit
def apply_kernel(
    matrix,
    rows,
    first_row,
    scale,
    out,
    n_edges,
    stride_out: tl.constexpr,
    stride_in: tl.constexpr,
    N_OUT: tl.constexpr,
    N_IN: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """out[e, i, c] = scale[c] sum_j matrix[e, i, j] rows[e, j, c], for BLOCK edges.

    ``first_row``, (E, WIDTH) or None, is added to row 0. A program does the channels of
    one stream.
    """
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    real = (edge < n_edges)[:, None]
    source = rows + edge[:, None] * (N_IN * WIDTH) + channel[None, :]
    held = ()
    for j in tl.static_range(N_IN):
        row = tl.load(source + j * WIDTH, mask=real, other=0.0)
        if j == 0 and first_row is not None:
            more = first_row + edge[:, None] * WIDTH + channel[None, :]
            row += tl.load(more, mask=real, other=0.0)
        held += (row,)
    of_edge = matrix + edge[:, None] * (N_OUT * N_IN)
    target = out + edge[:, None] * (N_OUT * WIDTH) + channel[None, :]
    for i in tl.static_range(N_OUT):
        total = tl.zeros((BLOCK, CHANNELS), tl.float32)
        for j in tl.static_range(N_IN):
            entry = of_edge + i * stride_out + j * stride_in
            total += tl.load(entry, mask=real, other=0.0) * held[j]
        if scale is not None:
            total *= tl.load(scale + channel)[None, :]
        tl.store(target + i * WIDTH, total, mask=real)


@triton.jit
def outer_kernel(
    left,
    first_row,
    right,
    scale,
    out,
    n_edges,
    N_LEFT: tl.constexpr,
    N_RIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """out[e, i, j] = sum_c scale[c] left[e, i, c] right[e, j, c], for BLOCK edges.

    ``first_row`` is added to row 0 of ``left``. COLUMNS and CHANNELS are N_RIGHT and
    WIDTH rounded up to powers of two.
    """
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, CHANNELS)[None, :]
    column = tl.arange(0, COLUMNS)[None, :]
    real = (edge < n_edges)[:, None]
    inside = real & (channel < WIDTH)
    source = right + edge[:, None] * (N_RIGHT * WIDTH) + channel
    held = ()
    for j in tl.static_range(N_RIGHT):
        row = tl.load(source + j * WIDTH, mask=inside, other=0.0)
        if scale is not None:
            row *= tl.load(scale + channel, mask=channel < WIDTH, other=0.0)
        held += (row,)
    source = left + edge[:, None] * (N_LEFT * WIDTH) + channel
    target = out + edge[:, None] * (N_LEFT * N_RIGHT) + column
    for i in tl.static_range(N_LEFT):
        row = tl.load(source + i * WIDTH, mask=inside, other=0.0)
        if i == 0 and first_row is not None:
            more = first_row + edge[:, None] * WIDTH + channel
            row += tl.load(more, mask=inside, other=0.0)
        # Columns are gathered, to be stored side by side.
        products = tl.zeros((BLOCK, COLUMNS), tl.float32)
        for j in tl.static_range(N_RIGHT):
            total = tl.sum(row * held[j], axis=1)
            products = tl.where(column == j, total[:, None], products)
        tl.store(target + i * N_RIGHT, products, mask=real & (column < N_RIGHT))
