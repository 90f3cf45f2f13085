"""The layers of the SO(2) stack: linear maps, gates and residuals in one kernel each.

A program does all rows of a block of edges in one stream, so that these are read once.
"""

import triton
import triton.language as tl

from ..products import multiply

__all__ = ["layer_backward_kernel", "layer_kernel"]


@triton.jit
def layer_kernel(
    rows,
    weight_0,
    weight_1,
    gate_weight,
    out,
    mixed,
    gates,
    n_edges,
    part_size_0,
    part_size_1,
    gate_part_size,
    LMAX: tl.constexpr,
    N_FOCUS: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    JOINED_0: tl.constexpr,
    JOINED_1: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Out = rows + act(z), z the linear map of ``rows``; without gates, rows + z.

    act is silu on the scalar row, and on the others a gate per degree and channel,
    sigmoid(z_0 @ gate_weight). ``mixed`` receives z, (E, R, H), and ``gates`` the gates,
    (E, L, H), where they are not None. JOINED_0 and JOINED_1 rows of order 0 and of
    orders -1 and +1, 1 or 2, are formed by one product.
    """
    focus = tl.program_id(0) % N_FOCUS
    block = tl.program_id(0) // N_FOCUS
    edge = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = (edge < n_edges)[:, None]
    WIDTH: tl.constexpr = N_FOCUS * CHANNELS
    channel = tl.arange(0, CHANNELS)[None, :]
    own = edge[:, None] * ((3 * LMAX + 1) * WIDTH) + focus * CHANNELS + channel
    of_gate = edge[:, None] * (LMAX * WIDTH) + focus * CHANNELS + channel

    totals = _zeros((LMAX + 1) // JOINED_0, BLOCK, JOINED_0 * CHANNELS)
    for row in range(LMAX + 1):
        x = tl.load(rows + own + row * WIDTH, mask=real, other=0.0)
        k = (focus * (LMAX + 1) + row) * CHANNELS
        totals = _accumulate(x, weight_0, k, part_size_0, totals, JOINED_0, PRECISION)
    totals = _rows_of(totals, JOINED_0)
    scalar = totals[0]
    if mixed is not None:
        tl.store(mixed + own, scalar, mask=real)
    before = tl.load(rows + own, mask=real, other=0.0)
    if gate_weight is None:
        tl.store(out + own, before + scalar, mask=real)
    else:
        tl.store(out + own, before + scalar * tl.sigmoid(scalar), mask=real)
    opened = ()
    for degree in tl.static_range(1, LMAX + 1):
        z = totals[degree]
        at_row = own + degree * WIDTH
        if mixed is not None:
            tl.store(mixed + at_row, z, mask=real)
        if gate_weight is not None:
            of_focus = focus * CHANNELS + tl.arange(0, CHANNELS)[:, None]
            at = (of_focus * LMAX + degree - 1) * CHANNELS + channel
            opening = tl.zeros((BLOCK, CHANNELS), tl.float32)
            opening = multiply(
                scalar, gate_weight, at, gate_part_size, opening, PRECISION
            )
            gate = tl.sigmoid(opening)
            if gates is not None:
                tl.store(gates + of_gate + (degree - 1) * WIDTH, gate, mask=real)
            opened += (gate,)
            z *= gate
        before = tl.load(rows + at_row, mask=real, other=0.0)
        tl.store(out + at_row, before + z, mask=real)

    totals = _zeros(2 * LMAX // JOINED_1, BLOCK, JOINED_1 * CHANNELS)
    for row in range(2 * LMAX):
        x = tl.load(rows + own + (LMAX + 1 + row) * WIDTH, mask=real, other=0.0)
        k = (focus * 2 * LMAX + row) * CHANNELS
        totals = _accumulate(x, weight_1, k, part_size_1, totals, JOINED_1, PRECISION)
    totals = _rows_of(totals, JOINED_1)
    for row in tl.static_range(2 * LMAX):
        z = totals[row]
        at_row = own + (LMAX + 1 + row) * WIDTH
        if mixed is not None:
            tl.store(mixed + at_row, z, mask=real)
        if gate_weight is not None:
            z *= opened[row % LMAX]
        before = tl.load(rows + at_row, mask=real, other=0.0)
        tl.store(out + at_row, before + z, mask=real)


@triton.jit
def layer_backward_kernel(
    grad,
    mixed,
    gates,
    weight_0,
    weight_1,
    gate_weight,
    out,
    n_edges,
    part_size_0,
    part_size_1,
    gate_part_size,
    LMAX: tl.constexpr,
    N_FOCUS: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    JOINED_0: tl.constexpr,
    JOINED_1: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gradient of the rows that went into a gated layer, from that of its result.

    ``mixed`` and ``gates`` are what the layer saved; all matrices are transposed.
    """
    focus = tl.program_id(0) % N_FOCUS
    block = tl.program_id(0) // N_FOCUS
    edge = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = (edge < n_edges)[:, None]
    WIDTH: tl.constexpr = N_FOCUS * CHANNELS
    channel = tl.arange(0, CHANNELS)[None, :]
    own = edge[:, None] * ((3 * LMAX + 1) * WIDTH) + focus * CHANNELS + channel
    of_gate = edge[:, None] * (LMAX * WIDTH) + focus * CHANNELS + channel

    of_scalar = tl.zeros((BLOCK, CHANNELS), tl.float32)
    for degree in range(1, LMAX + 1):
        opening = tl.zeros((BLOCK, CHANNELS), tl.float32)
        for order in tl.static_range(3):
            at_row = own + (degree + order * LMAX) * WIDTH
            pulled = tl.load(grad + at_row, mask=real, other=0.0)
            opening += pulled * tl.load(mixed + at_row, mask=real, other=0.0)
        gate = tl.load(gates + of_gate + (degree - 1) * WIDTH, mask=real, other=0.0)
        opening *= gate * (1 - gate)
        of_degree = (focus * LMAX + degree - 1) * CHANNELS
        at = (of_degree + tl.arange(0, CHANNELS)[:, None]) * CHANNELS + channel
        of_scalar = multiply(
            opening, gate_weight, at, gate_part_size, of_scalar, PRECISION
        )
    scalar = tl.load(mixed + own, mask=real, other=0.0)
    sigmoid = tl.sigmoid(scalar)
    slope = sigmoid * (1 + scalar * (1 - sigmoid))
    of_scalar += slope * tl.load(grad + own, mask=real, other=0.0)

    totals = _zeros((LMAX + 1) // JOINED_0, BLOCK, JOINED_0 * CHANNELS)
    k = focus * (LMAX + 1) * CHANNELS
    totals = _accumulate(of_scalar, weight_0, k, part_size_0, totals, JOINED_0, PRECISION)
    for row in range(1, LMAX + 1):
        x = tl.load(grad + own + row * WIDTH, mask=real, other=0.0)
        x *= tl.load(gates + of_gate + (row - 1) * WIDTH, mask=real, other=0.0)
        k = (focus * (LMAX + 1) + row) * CHANNELS
        totals = _accumulate(x, weight_0, k, part_size_0, totals, JOINED_0, PRECISION)
    totals = _rows_of(totals, JOINED_0)
    for row in tl.static_range(LMAX + 1):
        before = tl.load(grad + own + row * WIDTH, mask=real, other=0.0)
        tl.store(out + own + row * WIDTH, before + totals[row], mask=real)

    totals = _zeros(2 * LMAX // JOINED_1, BLOCK, JOINED_1 * CHANNELS)
    for row in range(2 * LMAX):
        x = tl.load(grad + own + (LMAX + 1 + row) * WIDTH, mask=real, other=0.0)
        x *= tl.load(gates + of_gate + (row % LMAX) * WIDTH, mask=real, other=0.0)
        k = (focus * 2 * LMAX + row) * CHANNELS
        totals = _accumulate(x, weight_1, k, part_size_1, totals, JOINED_1, PRECISION)
    totals = _rows_of(totals, JOINED_1)
    for row in tl.static_range(2 * LMAX):
        at_row = own + (LMAX + 1 + row) * WIDTH
        before = tl.load(grad + at_row, mask=real, other=0.0)
        tl.store(out + at_row, before + totals[row], mask=real)


@triton.jit
def _zeros(COUNT: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr):
    """So many tiles of zeros."""
    tiles = ()
    for _ in tl.static_range(COUNT):
        tiles += (tl.zeros((BLOCK, COLUMNS), tl.float32),)
    return tiles


@triton.jit
def _accumulate(
    x,
    weight,
    k,
    part_size,
    totals,
    JOINED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Each tile plus what ``x`` gives to it, by the rows of the matrix from k on."""
    CHANNELS: tl.constexpr = x.shape[1]
    COLUMNS: tl.constexpr = JOINED * CHANNELS
    SIZE: tl.constexpr = len(totals) * COLUMNS
    at = (k + tl.arange(0, CHANNELS))[:, None] * SIZE + tl.arange(0, COLUMNS)[None, :]
    following = ()
    for i in tl.static_range(len(totals)):
        there = at + i * COLUMNS
        following += (multiply(x, weight, there, part_size, totals[i], PRECISION),)
    return following


@triton.jit
def _rows_of(tiles, JOINED: tl.constexpr):
    """The rows that tiles of JOINED rows hold."""
    rows = tiles
    if JOINED == 2:
        rows = ()
        for i in tl.static_range(len(tiles)):
            pair = tiles[i].reshape(tiles[i].shape[0], 2, tiles[i].shape[1] // 2)
            rows += tl.split(pair.permute(0, 2, 1))
    return rows
