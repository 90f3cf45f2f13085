"""The weights of edges; a program has one tile of them.

Logits come first. Then each tile goes through those of its row to normalise its own: few
numbers, read again by every tile of a row, so that no tile waits for another.
"""

import triton
import triton.language as tl

from .tables import FLOOR, MAX_EXPONENT

__all__ = ["logits_kernel", "share", "slots_of_row", "weights_kernel"]

_FLOOR = tl.constexpr(FLOOR)
_MAX_EXPONENT = tl.constexpr(MAX_EXPONENT)


@triton.jit
def logits_kernel(
    bias,
    query,
    key,
    scalars,
    competition,
    competition_bias,
    tile_row,
    logits,
    softmax,
    bias_stride,
    norm_eps,
    TILE: tl.constexpr,
    N_STREAMS: tl.constexpr,
    N_HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """``q . k / sqrt(CHANNELS) + bias`` of each head, (S, K), and of the streams.

    ``softmax`` is over the streams, (S, F), before the floor; ``scalars`` is None where
    they do not compete. CHANNELS are those of a head; a row has N_STREAMS N_HEADS of it.
    """
    N_WEIGHTS: tl.constexpr = N_STREAMS * N_HEADS
    WIDTH: tl.constexpr = N_WEIGHTS * CHANNELS
    tile = tl.program_id(0).to(tl.int64)
    slot = tile * TILE + tl.arange(0, TILE)
    of_row = query + tl.load(tile_row + tile) * WIDTH
    of_slot = key + slot[:, None] * WIDTH
    for k in tl.static_range(N_WEIGHTS):
        channel = k * CHANNELS + tl.arange(0, CHANNELS)
        product = tl.load(of_slot + channel[None, :]) * tl.load(of_row + channel)[None, :]
        logit = tl.sum(product, axis=1) * (1.0 / CHANNELS**0.5)
        logit += tl.load(bias + slot * bias_stride + k)
        tl.store(logits + slot * N_WEIGHTS + k, logit)
    if scalars is not None:
        _compete(
            scalars,
            competition,
            competition_bias,
            softmax,
            norm_eps,
            slot,
            N_STREAMS,
            N_HEADS * CHANNELS,
        )


@triton.jit
def _compete(
    scalars,
    competition,
    competition_bias,
    softmax,
    norm_eps,
    slot,
    N_STREAMS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Softmax over the streams of some slots; CHANNELS are those of a stream."""
    logits = ()
    for f in tl.static_range(N_STREAMS):
        channel = f * CHANNELS + tl.arange(0, CHANNELS)
        at = slot[:, None] * (N_STREAMS * CHANNELS) + channel[None, :]
        values = tl.load(scalars + at)
        logit = tl.sum(values * tl.load(competition + channel)[None, :], axis=1)
        if norm_eps is not None:
            logit *= tl.rsqrt(tl.sum(values * values, axis=1) / CHANNELS + norm_eps)
        if competition_bias is not None:
            logit += tl.load(competition_bias + f)
        logits += (logit,)
    largest = logits[0]
    for f in tl.static_range(1, N_STREAMS):
        largest = tl.maximum(largest, logits[f])
    total = tl.zeros_like(largest)
    for f in tl.static_range(N_STREAMS):
        total += tl.exp(logits[f] - largest)
    for f in tl.static_range(N_STREAMS):
        tl.store(softmax + slot * N_STREAMS + f, tl.exp(logits[f] - largest) / total)


@triton.jit
def weights_kernel(
    logits,
    strength,
    softmax,
    null,
    tile_row,
    tile_ptr,
    weights,
    roots,
    TILE: tl.constexpr,
    N_STREAMS: tl.constexpr,
    N_HEADS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Mass over the total of the row, times the share of the stream, (S, K).

    ``roots`` is what the root of mass over total has besides ``strength``, (S, K).
    BLOCK slots of the row are read at a time; COLUMNS is K rounded up to a power of two.
    """
    N_WEIGHTS: tl.constexpr = N_STREAMS * N_HEADS
    tile = tl.program_id(0).to(tl.int64)
    slot = tile * TILE + tl.arange(0, TILE)
    own = tl.load(strength + slot)
    first, end = slots_of_row(tile_row, tile_ptr, tile, own, TILE)
    k = tl.arange(0, COLUMNS)[None, :]
    of_nothing = tl.load(null + k, mask=k < N_WEIGHTS, other=1.0)

    shift = tl.log(of_nothing)
    for start in range(first, end, BLOCK):
        logit, w = _masses(logits, strength, start, end, k, BLOCK, N_WEIGHTS)
        log_mass = logit + 2 * tl.log(tl.where(w > 0, w, 1.0))
        log_mass = tl.where(w > 0, log_mass, float("-inf"))
        shift = tl.maximum(shift, tl.max(log_mass, axis=0)[None, :])
    total = of_nothing * tl.exp(-shift)
    for start in range(first, end, BLOCK):
        logit, w = _masses(logits, strength, start, end, k, BLOCK, N_WEIGHTS)
        root = w * _exp_half(logit - shift)
        total += tl.sum(root * root, axis=0)[None, :]

    at = slot[:, None] * N_WEIGHTS + k
    inside = k < N_WEIGHTS
    root = _exp_half(tl.load(logits + at, mask=inside, other=0.0) - shift)
    tl.store(roots + at, root / tl.sqrt(total), mask=inside)
    root = own[:, None] * root
    weight = root * root / total
    if softmax is not None:
        of_stream = softmax + slot[:, None] * N_STREAMS + k // N_HEADS
        weight *= share(tl.load(of_stream, mask=inside, other=0.0), N_STREAMS)
    tl.store(weights + at, weight, mask=inside)


@triton.jit
def slots_of_row(tile_row, tile_ptr, tile, strength, TILE: tl.constexpr):
    """First slot and the end of the row of a tile; none for a tile without strength.

    Such a tile has no part in its row, and one row has all those that no edge uses: were
    each to go through that row, it would take the square of their number.
    """
    row = tl.load(tile_row + tile)
    first = tl.load(tile_ptr + row) * TILE
    end = tl.load(tile_ptr + row + 1) * TILE
    used = tl.max((strength != 0).to(tl.int32), axis=0)
    return first, tl.where(used > 0, end, first)


@triton.jit
def share(softmax, N_STREAMS: tl.constexpr):
    """Share of a stream."""
    return (1 - _FLOOR) * softmax + _FLOOR / N_STREAMS


@triton.jit
def _masses(
    logits, strength, start, end, k, BLOCK: tl.constexpr, N_WEIGHTS: tl.constexpr
):
    """Logits (BLOCK, COLUMNS) and strengths (BLOCK, 1) of slots from ``start`` on."""
    slot = (start + tl.arange(0, BLOCK))[:, None]
    inside = (slot < end) & (k < N_WEIGHTS)
    logit = tl.load(logits + slot * N_WEIGHTS + k, mask=inside, other=0.0)
    return logit, tl.load(strength + slot, mask=slot < end, other=0.0)


@triton.jit
def _exp_half(x):
    # By itself the minimum of NaN and a number is that number.
    return tl.exp(tl.minimum(0.5 * x, _MAX_EXPONENT, tl.PropagateNan.ALL))
