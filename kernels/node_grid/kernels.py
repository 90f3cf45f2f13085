"""Product of two fields on a grid, and its gradients, point block by point block.

A program has a block of rows, a row being one channel of one node, with all K
coefficients; so the matrices are the right factors of all products, as
``products.multiply`` wants them. Values on the grid exist for one block of points only.

The coefficients are a tuple of pieces, PIECE of them each and LAST in the last (K = 48 is
32 + 16, not 64). Tables are padded with zeros, so what lies beyond K or G adds nothing.
"""

import triton
import triton.language as tl

from ..products import multiply

__all__ = ["product_backward_kernel", "product_kernel"]


@triton.jit(do_not_specialize=["n_rows"])
def product_kernel(
    left,
    right,
    synthesis,
    analysis,
    out,
    n_rows,
    G_PITCH: tl.constexpr,
    K_PITCH: tl.constexpr,
    POINTS: tl.constexpr,
    COEFFICIENTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    POINT_BLOCK: tl.constexpr,
    PIECE: tl.constexpr,
    LAST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Out = analysis @ (synthesis @ left * synthesis @ right).

    ``left``, ``right`` and ``out`` are (B, K, C), with K and C as COEFFICIENTS and
    CHANNELS; ``n_rows`` is B C. ``synthesis`` is a table to the grid, ``analysis`` one
    from it, and G_PITCH and K_PITCH are their sides. A program does BLOCK rows,
    POINT_BLOCK of the POINTS points at a time.
    """
    at, live = _rows(n_rows, COEFFICIENTS, CHANNELS, BLOCK)
    x = _load(left, at, live, COEFFICIENTS, CHANNELS, PIECE, LAST)
    y = _load(right, at, live, COEFFICIENTS, CHANNELS, PIECE, LAST)
    total = _zeros_like(x)
    for start in range(0, POINTS, POINT_BLOCK):
        point = start + tl.arange(0, POINT_BLOCK)
        values = _to_grid(x, synthesis, point, G_PITCH, K_PITCH, PIECE, PRECISION)
        values *= _to_grid(y, synthesis, point, G_PITCH, K_PITCH, PIECE, PRECISION)
        total = _add(values, analysis, point, total, G_PITCH, K_PITCH, PIECE, PRECISION)
    _store(out, total, at, live, COEFFICIENTS, CHANNELS, PIECE)


@triton.jit(do_not_specialize=["n_rows"])
def product_backward_kernel(
    grad,
    left,
    right,
    synthesis,
    analysis_t,
    synthesis_t,
    of_left,
    of_right,
    n_rows,
    G_PITCH: tl.constexpr,
    K_PITCH: tl.constexpr,
    POINTS: tl.constexpr,
    COEFFICIENTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    POINT_BLOCK: tl.constexpr,
    PIECE: tl.constexpr,
    LAST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gradients: synthesis.T @ (analysis.T @ grad * synthesis @ right), left's alike.

    ``synthesis`` and ``analysis_t`` are tables to the grid, ``synthesis_t`` is one from
    it; everything else is as in the forward.
    """
    at, live = _rows(n_rows, COEFFICIENTS, CHANNELS, BLOCK)
    g = _load(grad, at, live, COEFFICIENTS, CHANNELS, PIECE, LAST)
    x = _load(left, at, live, COEFFICIENTS, CHANNELS, PIECE, LAST)
    y = _load(right, at, live, COEFFICIENTS, CHANNELS, PIECE, LAST)
    of_x, of_y = _zeros_like(x), _zeros_like(x)
    for start in range(0, POINTS, POINT_BLOCK):
        point = start + tl.arange(0, POINT_BLOCK)
        pulled = _to_grid(g, analysis_t, point, G_PITCH, K_PITCH, PIECE, PRECISION)
        value = _to_grid(y, synthesis, point, G_PITCH, K_PITCH, PIECE, PRECISION)
        value *= pulled
        of_x = _add(value, synthesis_t, point, of_x, G_PITCH, K_PITCH, PIECE, PRECISION)
        value = _to_grid(x, synthesis, point, G_PITCH, K_PITCH, PIECE, PRECISION)
        value *= pulled
        of_y = _add(value, synthesis_t, point, of_y, G_PITCH, K_PITCH, PIECE, PRECISION)
    _store(of_left, of_x, at, live, COEFFICIENTS, CHANNELS, PIECE)
    _store(of_right, of_y, at, live, COEFFICIENTS, CHANNELS, PIECE)


@triton.jit
def _rows(
    n_rows, COEFFICIENTS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):
    """Offset of the first coefficient of each row, and whether there is such a row."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return row // CHANNELS * (COEFFICIENTS * CHANNELS) + row % CHANNELS, row < n_rows


@triton.jit
def _load(
    field,
    at,
    live,
    COEFFICIENTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PIECE: tl.constexpr,
    LAST: tl.constexpr,
):
    """All coefficients of the rows, a tuple of (BLOCK, PIECE) and (BLOCK, LAST)."""
    pieces = ()
    for start in tl.static_range(0, COEFFICIENTS, PIECE):
        if start + PIECE < COEFFICIENTS:
            k = start + tl.arange(0, PIECE)
        else:
            k = start + tl.arange(0, LAST)
        mask = live[:, None] & (k < COEFFICIENTS)[None, :]
        offsets = at[:, None] + k[None, :] * CHANNELS
        pieces += (tl.load(field + offsets, mask=mask, other=0.0),)
    return pieces


@triton.jit
def _store(
    field,
    pieces,
    at,
    live,
    COEFFICIENTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PIECE: tl.constexpr,
):
    for i in tl.static_range(len(pieces)):
        k = i * PIECE + tl.arange(0, pieces[i].shape[1])
        mask = live[:, None] & (k < COEFFICIENTS)[None, :]
        offsets = at[:, None] + k[None, :] * CHANNELS
        tl.store(field + offsets, pieces[i], mask=mask)


@triton.jit
def _zeros_like(pieces):
    zeros = ()
    for i in tl.static_range(len(pieces)):
        zeros += (tl.zeros_like(pieces[i]),)
    return zeros


@triton.jit
def _to_grid(
    pieces,
    table,
    point,
    G_PITCH: tl.constexpr,
    K_PITCH: tl.constexpr,
    PIECE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Values of the rows at some points, (BLOCK, points)."""
    values = tl.zeros((pieces[0].shape[0], point.shape[0]), tl.float32)
    for i in tl.static_range(len(pieces)):
        k = i * PIECE + tl.arange(0, pieces[i].shape[1])
        offsets = point[None, :] * K_PITCH + k[:, None]
        values = multiply(pieces[i], table, offsets, G_PITCH * K_PITCH, values, PRECISION)
    return values


@triton.jit
def _add(
    values,
    table,
    point,
    totals,
    G_PITCH: tl.constexpr,
    K_PITCH: tl.constexpr,
    PIECE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Add to each coefficient what values at some points give."""
    pieces = ()
    for i in tl.static_range(len(totals)):
        k = i * PIECE + tl.arange(0, totals[i].shape[1])
        offsets = k[None, :] * G_PITCH + point[:, None]
        pieces += (
            multiply(values, table, offsets, G_PITCH * K_PITCH, totals[i], PRECISION),
        )
    return pieces
