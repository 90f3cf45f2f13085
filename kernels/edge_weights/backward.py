"""Gradients of the weights of edges; a program has one tile, then one row of tiles."""

import triton
import triton.language as tl

from .kernels import share, slots_of_row
from .tables import FLOOR

__all__ = ["add_tiles_kernel", "weights_backward_kernel"]

_FLOOR = tl.constexpr(FLOOR)


@triton.jit
def weights_backward_kernel(
    grad,
    weights,
    roots,
    softmax,
    query,
    key,
    strength,
    scalars,
    competition,
    tile_row,
    tile_ptr,
    of_bias,
    of_query,
    of_key,
    of_strength,
    of_scalars,
    norm_eps,
    TILE: tl.constexpr,
    N_STREAMS: tl.constexpr,
    N_HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradients of all inputs; that of the query is the part of each tile, (T, H).

    The first three and ``softmax`` are as in ``kernels.weights_kernel``. There is no
    division by the strength: at zero the gradients are finite.
    """
    N_WEIGHTS: tl.constexpr = N_STREAMS * N_HEADS
    tile = tl.program_id(0).to(tl.int64)
    slot = tile * TILE + tl.arange(0, TILE)
    own = tl.load(strength + slot)
    first, end = slots_of_row(tile_row, tile_ptr, tile, own, TILE)
    k = tl.arange(0, COLUMNS)[None, :]
    mean = tl.zeros((1, COLUMNS), tl.float32)
    for start in range(first, end, BLOCK):
        other = (start + tl.arange(0, BLOCK))[:, None]
        inside = (other < end) & (k < N_WEIGHTS)
        at = other * N_WEIGHTS + k
        product = tl.load(grad + at, mask=inside, other=0.0)
        product *= tl.load(weights + at, mask=inside, other=0.0)
        mean += tl.sum(product, axis=0)[None, :]

    row = tl.load(tile_row + tile)
    of_own = tl.zeros_like(own)
    of_shares = ()
    for f in tl.static_range(N_STREAMS):
        of_share = tl.zeros_like(own)
        for j in tl.static_range(N_HEADS):
            at = slot * N_WEIGHTS + (f * N_HEADS + j)
            of_weight = tl.load(grad + at)
            factor = tl.load(roots + at)
            root = own * factor
            weight = root * root
            of_share += of_weight * weight
            if softmax is not None:
                of_weight *= share(tl.load(softmax + slot * N_STREAMS + f), N_STREAMS)
            of_weight -= tl.sum(tl.where(k == f * N_HEADS + j, mean, 0.0))
            of_own += 2 * root * factor * of_weight
            of_logit = weight * of_weight
            tl.store(of_bias + at, of_logit)
            _pull_product(
                query,
                key,
                of_query,
                of_key,
                tile,
                row,
                slot,
                of_logit,
                f * N_HEADS + j,
                N_WEIGHTS,
                CHANNELS,
            )
        of_shares += (of_share,)
    tl.store(of_strength + slot, of_own)
    if scalars is not None:
        _pull_competition(
            scalars,
            competition,
            softmax,
            of_scalars,
            norm_eps,
            slot,
            of_shares,
            N_STREAMS,
            N_HEADS * CHANNELS,
        )


@triton.jit
def _pull_product(
    query,
    key,
    of_query,
    of_key,
    tile,
    row,
    slot,
    of_logit,
    HEAD: tl.constexpr,
    N_WEIGHTS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Gradients of the product of query and key in the channels of one head."""
    WIDTH: tl.constexpr = N_WEIGHTS * CHANNELS
    channel = HEAD * CHANNELS + tl.arange(0, CHANNELS)
    at = slot[:, None] * WIDTH + channel[None, :]
    scaled = (of_logit * (1.0 / CHANNELS**0.5))[:, None]
    tl.store(of_key + at, scaled * tl.load(query + row * WIDTH + channel)[None, :])
    total = tl.sum(scaled * tl.load(key + at), axis=0)
    tl.store(of_query + tile * WIDTH + channel, total)


@triton.jit
def _pull_competition(
    scalars,
    competition,
    softmax,
    of_scalars,
    norm_eps,
    slot,
    of_shares,
    N_STREAMS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Gradient of the scalars by way of the shares; CHANNELS are those of a stream."""
    weights = ()
    for f in tl.static_range(N_STREAMS):
        weights += (tl.load(softmax + slot * N_STREAMS + f),)
    for f in tl.static_range(N_STREAMS):
        # Differences and not that from the mean, which is close where a weight is near 1.
        excess = tl.zeros_like(of_shares[0])
        for other in tl.static_range(N_STREAMS):
            excess += weights[other] * (of_shares[f] - of_shares[other])
        of_logit = (1 - _FLOOR) * weights[f] * excess
        channel = f * CHANNELS + tl.arange(0, CHANNELS)
        at = slot[:, None] * (N_STREAMS * CHANNELS) + channel[None, :]
        pulled = tl.load(competition + channel)[None, :]
        if norm_eps is not None:
            values = tl.load(scalars + at)
            inverse = tl.rsqrt(tl.sum(values * values, axis=1) / CHANNELS + norm_eps)
            normed = values * inverse[:, None]
            along = tl.sum(normed * pulled, axis=1) / CHANNELS
            pulled = inverse[:, None] * (pulled - normed * along[:, None])
        tl.store(of_scalars + at, of_logit[:, None] * pulled)


@triton.jit
def add_tiles_kernel(
    tiles,
    tile_ptr,
    out,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Sums over the tiles of one row, (T, WIDTH) -> (R, WIDTH), in COLUMNS columns."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    end = tl.load(tile_ptr + row + 1)
    total = tl.zeros((COLUMNS,), tl.float32)
    for start in range(tl.load(tile_ptr + row), end, BLOCK):
        tile = start + tl.arange(0, BLOCK)
        values = tl.load(
            tiles + tile[:, None] * WIDTH + column[None, :],
            mask=(tile < end)[:, None] & (column < WIDTH)[None, :],
            other=0.0,
        )
        total += tl.sum(values, axis=0)
    tl.store(out + row * WIDTH + column, total, mask=column < WIDTH)
