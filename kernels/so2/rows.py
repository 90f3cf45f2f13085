"""Rows of the source of each edge turned into its frame and mixed by degree."""

import triton
import triton.language as tl

__all__ = ["rotate_in_backward_kernel", "rotate_in_kernel"]


@triton.jit
def rotate_in_kernel(
    frames,
    factors,
    source,
    scale,
    rows,
    first,
    n_edges,
    factor_stride,
    LMAX: tl.constexpr,
    RANK: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Rows (E, R, H) in the frames of BLOCK edges, for the channels of one stream.

    See ``reference.rotate_in``; ``first`` receives row 0 once more. RANK 0 is for factors
    per degree and channel.
    """
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    real = (edge < n_edges)[:, None]
    inside = real & (channel < WIDTH)[None, :]
    turned = _turn(frames, source, edge, channel, real, inside, LMAX, WIDTH)
    target = rows + edge[:, None] * ((3 * LMAX + 1) * WIDTH) + channel[None, :]
    of_edge = factors + edge[:, None] * factor_stride
    for row in tl.static_range(3 * LMAX + 1):
        total = tl.zeros((BLOCK, CHANNELS), tl.float32)
        if RANK == 0:
            at = of_edge + _degree(row, LMAX) * WIDTH + channel[None, :]
            total += turned[row] * tl.load(at, mask=inside, other=0.0)
        for r in tl.static_range(RANK):
            mixed = tl.zeros((BLOCK, CHANNELS), tl.float32)
            for l in tl.static_range(_n_degrees(row, LMAX)):
                entry = of_edge + (_entry_to(row, l, LMAX) * RANK + r)
                factor = tl.load(entry, mask=real, other=0.0)
                mixed += factor * turned[_same_order(row, l, LMAX)]
            if scale is not None:
                at_channel = scale + r * WIDTH + channel
                mixed *= tl.load(at_channel, mask=channel < WIDTH, other=0.0)[None, :]
            total += mixed
        tl.store(target + row * WIDTH, total, mask=inside)
        if row == 0:
            tl.store(first + edge[:, None] * WIDTH + channel[None, :], total, mask=inside)


@triton.jit
def rotate_in_backward_kernel(
    grad,
    grad_first,
    frames,
    factors,
    source,
    scale,
    of_frames,
    of_factors,
    of_source,
    n_edges,
    factor_stride,
    LMAX: tl.constexpr,
    RANK: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    CHANNELS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PACKED: tl.constexpr,
):
    """Gradients of the above for BLOCK edges and all channels.

    CHANNELS, COLUMNS and PACKED are WIDTH, the number of factors and D rounded up to
    powers of two. ``of_factors`` has zeros where there are no factors.
    """
    N_PACKED: tl.constexpr = (LMAX + 1) * (LMAX + 1)
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, CHANNELS)
    real = (edge < n_edges)[:, None]
    inside = real & (channel < WIDTH)[None, :]
    turned = _turn(frames, source, edge, channel, real, inside, LMAX, WIDTH)
    at_row = grad + edge[:, None] * ((3 * LMAX + 1) * WIDTH) + channel[None, :]
    pulled = ()
    for row in tl.static_range(3 * LMAX + 1):
        of_row = tl.load(at_row + row * WIDTH, mask=inside, other=0.0)
        if row == 0:
            more = grad_first + edge[:, None] * WIDTH + channel[None, :]
            of_row += tl.load(more, mask=inside, other=0.0)
        pulled += (of_row,)
    if RANK == 0:
        of_turned = _pull_scaled(
            factors,
            of_factors,
            turned,
            pulled,
            edge,
            channel,
            real,
            factor_stride,
            LMAX,
            WIDTH,
        )
    else:
        of_turned = _pull_mixed(
            factors,
            of_factors,
            scale,
            turned,
            pulled,
            edge,
            channel,
            real,
            factor_stride,
            LMAX,
            RANK,
            WIDTH,
            COLUMNS,
        )

    column = tl.arange(0, PACKED)[None, :]
    of_edge = frames + edge[:, None] * (3 * N_PACKED)
    at_source = edge[:, None] * (N_PACKED * WIDTH) + channel[None, :]
    of_order = ()
    for _ in tl.static_range(3):
        of_order += (tl.zeros((BLOCK, PACKED), tl.float32),)
    for l in tl.static_range(LMAX + 1):
        for packed in tl.static_range(l * l, (l + 1) * (l + 1)):
            x = tl.load(source + at_source + packed * WIDTH, mask=inside, other=0.0)
            total = tl.zeros((BLOCK, CHANNELS), tl.float32)
            gathered = ()
            for order in tl.static_range(3):
                if l == 0 and order > 0:
                    gathered += (of_order[order],)
                else:
                    entry = of_edge + order * N_PACKED + packed
                    of_row = of_turned[l + order * LMAX]
                    total += tl.load(entry, mask=real, other=0.0) * of_row
                    product = tl.sum(of_row * x, axis=1)[:, None]
                    gathered += (tl.where(column == packed, product, of_order[order]),)
            of_order = gathered
            tl.store(of_source + at_source + packed * WIDTH, total, mask=inside)
    target = of_frames + edge[:, None] * (3 * N_PACKED) + column
    for order in tl.static_range(3):
        tl.store(
            target + order * N_PACKED, of_order[order], mask=real & (column < N_PACKED)
        )


@triton.jit
def _turn(
    frames, source, edge, channel, real, inside, LMAX: tl.constexpr, WIDTH: tl.constexpr
):
    """Rows of the source in the frame of the edge, (BLOCK, CHANNELS) each."""
    N_PACKED: tl.constexpr = (LMAX + 1) * (LMAX + 1)
    of_edge = frames + edge[:, None] * (3 * N_PACKED)
    of_source = source + edge[:, None] * (N_PACKED * WIDTH) + channel[None, :]
    zero, minus, plus = (), (), ()
    for l in tl.static_range(LMAX + 1):
        row_0 = tl.zeros((edge.shape[0], channel.shape[0]), tl.float32)
        row_minus = tl.zeros((edge.shape[0], channel.shape[0]), tl.float32)
        row_plus = tl.zeros((edge.shape[0], channel.shape[0]), tl.float32)
        for packed in tl.static_range(l * l, (l + 1) * (l + 1)):
            x = tl.load(of_source + packed * WIDTH, mask=inside, other=0.0)
            row_0 += tl.load(of_edge + packed, mask=real, other=0.0) * x
            if l > 0:
                entry = of_edge + N_PACKED + packed
                row_minus += tl.load(entry, mask=real, other=0.0) * x
                row_plus += tl.load(entry + N_PACKED, mask=real, other=0.0) * x
        zero += (row_0,)
        if l > 0:
            minus += (row_minus,)
            plus += (row_plus,)
    return zero + minus + plus


@triton.jit
def _pull_scaled(
    factors,
    of_factors,
    turned,
    pulled,
    edge,
    channel,
    real,
    factor_stride,
    LMAX: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Gradients of the turned rows, those of the factors stored: one per channel."""
    inside = real & (channel < WIDTH)[None, :]
    at = edge[:, None] * factor_stride + channel[None, :]
    result = ()
    for row in tl.static_range(3 * LMAX + 1):
        of_degree = factors + at + _degree(row, LMAX) * WIDTH
        factor = tl.load(of_degree, mask=inside, other=0.0)
        result += (factor * pulled[row],)
    for l in tl.static_range(LMAX + 1):
        product = turned[l] * pulled[l]
        if l > 0:
            product += turned[l + LMAX] * pulled[l + LMAX]
            product += turned[l + 2 * LMAX] * pulled[l + 2 * LMAX]
        tl.store(of_factors + at + l * WIDTH, product, mask=inside)
    return result


@triton.jit
def _pull_mixed(
    factors,
    of_factors,
    scale,
    turned,
    pulled,
    edge,
    channel,
    real,
    factor_stride,
    LMAX: tl.constexpr,
    RANK: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradients of the turned rows, those of the factors stored: degree to degree."""
    of_edge = factors + edge[:, None] * factor_stride
    column = tl.arange(0, COLUMNS)[None, :]
    N_0: tl.constexpr = LMAX + 1
    gathered = tl.zeros((edge.shape[0], COLUMNS), tl.float32)
    result = ()
    for _ in tl.static_range(3 * LMAX + 1):
        result += (tl.zeros((edge.shape[0], channel.shape[0]), tl.float32),)
    for r in tl.static_range(RANK):
        scaled = pulled
        if scale is not None:
            at_channel = scale + r * WIDTH + channel
            by = tl.load(at_channel, mask=channel < WIDTH, other=0.0)[None, :]
            scaled = ()
            for row in tl.static_range(3 * LMAX + 1):
                scaled += (pulled[row] * by,)
        added = ()
        for row in tl.static_range(3 * LMAX + 1):
            total = result[row]
            for l in tl.static_range(_n_degrees(row, LMAX)):
                entry = of_edge + (_entry_from(row, l, LMAX) * RANK + r)
                factor = tl.load(entry, mask=real, other=0.0)
                total += factor * scaled[_same_order(row, l, LMAX)]
            added += (total,)
        result = added
        for a in tl.static_range(N_0):
            for b in tl.static_range(N_0):
                product = tl.sum(turned[a] * scaled[b], axis=1)[:, None]
                own = column == (a * N_0 + b) * RANK + r
                gathered = tl.where(own, product, gathered)
        for a in tl.static_range(LMAX):
            for b in tl.static_range(LMAX):
                both = turned[N_0 + a] * scaled[N_0 + b]
                both += turned[N_0 + LMAX + a] * scaled[N_0 + LMAX + b]
                product = tl.sum(both, axis=1)[:, None]
                own = column == (N_0 * N_0 + a * LMAX + b) * RANK + r
                gathered = tl.where(own, product, gathered)
    at = of_factors + edge[:, None] * factor_stride + column
    tl.store(at, gathered, mask=real & (column < factor_stride))
    return result


@triton.constexpr_function
def _degree(row, lmax):
    return row if row <= lmax else 1 + (row - lmax - 1) % lmax


@triton.constexpr_function
def _n_degrees(row, lmax):
    """Number of rows with the order of ``row``."""
    return lmax + 1 if row <= lmax else lmax


@triton.constexpr_function
def _same_order(row, place, lmax):
    """The row at ``place`` among those with the order of ``row``."""
    if row <= lmax:
        return place
    return place + (lmax + 1 if row <= 2 * lmax else 2 * lmax + 1)


@triton.constexpr_function
def _entry_to(row, place, lmax):
    """Where the factor from the row at ``place`` to ``row`` is."""
    if row <= lmax:
        return place * (lmax + 1) + row
    return (lmax + 1) ** 2 + place * lmax + (row - lmax - 1) % lmax


@triton.constexpr_function
def _entry_from(row, place, lmax):
    """Where the factor from ``row`` to the row at ``place`` is."""
    if row <= lmax:
        return row * (lmax + 1) + place
    return (lmax + 1) ** 2 + (row - lmax - 1) % lmax * lmax + place
