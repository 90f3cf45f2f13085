"""Radial features and envelopes of edges, and the gradient of the edge vectors."""

import triton
import triton.language as tl

from ..directions import direction

__all__ = ["radial_backward_kernel", "radial_kernel"]


@triton.jit
def radial_kernel(
    vec,
    frequencies,
    hidden,
    hidden_bias,
    norm_scale,
    out,
    out_bias,
    features,
    envelope,
    n_edges,
    rcut_basis,
    rcut,
    eps_squared,
    norm_eps,
    TERMS_BASIS: tl.constexpr,
    TERMS: tl.constexpr,
    VANISHING: tl.constexpr,
    N_BASIS: tl.constexpr,
    N_HIDDEN: tl.constexpr,
    N_OUT: tl.constexpr,
    BASIS: tl.constexpr,
    HIDDEN: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Features (E, N_OUT) and envelope (E,) for BLOCK edges.

    BASIS and HIDDEN are N_BASIS and N_HIDDEN rounded up to powers of two; COLUMNS
    features are formed at a time.
    """
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = edge < n_edges
    _, _, _, r = direction(vec, edge, n_edges, eps_squared)
    weight, _ = _envelope(r, rcut, TERMS)
    tl.store(envelope + edge[:, None], weight, mask=real[:, None])
    basis, _ = _basis(r, frequencies, rcut_basis, TERMS_BASIS, N_BASIS, BASIS)
    before, scale, inverse = _hidden_layer(
        basis, hidden, hidden_bias, norm_scale, norm_eps, N_BASIS, N_HIDDEN, HIDDEN
    )
    normed = before * scale * inverse
    active = normed * tl.sigmoid(normed)
    for start in tl.static_range(0, N_OUT, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        values = _feature_columns(active, out, out_bias, column, N_HIDDEN, N_OUT)
        if VANISHING:
            values *= weight
        at = features + edge[:, None] * N_OUT + column[None, :]
        tl.store(at, values, mask=real[:, None])


@triton.jit
def radial_backward_kernel(
    vec,
    frequencies,
    hidden,
    hidden_bias,
    norm_scale,
    out,
    out_bias,
    grad,
    grad_envelope,
    of_vec,
    n_edges,
    rcut_basis,
    rcut,
    eps_squared,
    norm_eps,
    TERMS_BASIS: tl.constexpr,
    TERMS: tl.constexpr,
    VANISHING: tl.constexpr,
    N_BASIS: tl.constexpr,
    N_HIDDEN: tl.constexpr,
    N_OUT: tl.constexpr,
    BASIS: tl.constexpr,
    HIDDEN: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradient of the edge vectors; the layers are run again."""
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = (edge < n_edges)[:, None]
    x, y, z, r = direction(vec, edge, n_edges, eps_squared)
    weight, weight_slope = _envelope(r, rcut, TERMS)
    basis, basis_slope = _basis(r, frequencies, rcut_basis, TERMS_BASIS, N_BASIS, BASIS)
    before, scale, inverse = _hidden_layer(
        basis, hidden, hidden_bias, norm_scale, norm_eps, N_BASIS, N_HIDDEN, HIDDEN
    )
    normed = before * scale * inverse
    sigmoid = tl.sigmoid(normed)
    active = normed * sigmoid

    of_weight = tl.load(grad_envelope + edge[:, None], mask=real, other=0.0)
    of_active = tl.zeros((BLOCK, HIDDEN), tl.float32)
    for start in tl.static_range(0, N_OUT, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        at = grad + edge[:, None] * N_OUT + column[None, :]
        pulled = tl.load(at, mask=real, other=0.0)
        if VANISHING:
            values = _feature_columns(active, out, out_bias, column, N_HIDDEN, N_OUT)
            of_weight += tl.sum(pulled * values, axis=1)[:, None]
            pulled *= weight
        table = _table(out, tl.arange(0, HIDDEN), column, N_HIDDEN, N_OUT)
        of_active += tl.dot(pulled, tl.trans(table), input_precision="ieee")
    of_normed = of_active * sigmoid * (1 + normed * (1 - sigmoid))
    of_before = of_normed * scale * inverse
    if norm_scale is not None:
        along = tl.sum(of_before * before, axis=1)[:, None] / N_HIDDEN
        of_before -= before * inverse * inverse * along
    table = _table(hidden, tl.arange(0, BASIS), tl.arange(0, HIDDEN), N_BASIS, N_HIDDEN)
    of_basis = tl.dot(of_before, tl.trans(table), input_precision="ieee")
    of_r = tl.sum(of_basis * basis_slope, axis=1)[:, None] + of_weight * weight_slope
    at = of_vec + edge[:, None] * 3
    tl.store(at, of_r * x, mask=real)
    tl.store(at + 1, of_r * y, mask=real)
    tl.store(at + 2, of_r * z, mask=real)


@triton.jit
def _envelope(r, rcut, TERMS: tl.constexpr):
    """``u^4 sum_k binom(k + 3, 3) (1 - u)^k``, u = (rcut - r) / rcut, and its slope."""
    u = tl.minimum(tl.maximum((rcut - r) / rcut, 0.0), 1.0)
    x = 1 - u
    series = tl.zeros_like(x)
    last = tl.full(x.shape, 1.0, tl.float32)  # x^(TERMS - 1)
    for i in tl.static_range(TERMS):
        series = series * x + (TERMS - i) * (TERMS - i + 1) * (TERMS - i + 2) // 6
        if i > 0:
            last *= x
    # All terms of the derivative but one cancel.
    factor: tl.constexpr = TERMS * (TERMS + 1) * (TERMS + 2) * (TERMS + 3) // 6
    return u * u * u * u * series, -factor * last * (u * u * u) / rcut


@triton.jit
def _basis(
    r,
    frequencies,
    rcut,
    TERMS: tl.constexpr,
    N_BASIS: tl.constexpr,
    BASIS: tl.constexpr,
):
    """``sin(f r) / r`` times an envelope, (BLOCK, BASIS), and its slope."""
    column = tl.arange(0, BASIS)
    f = tl.load(frequencies + column, mask=column < N_BASIS, other=0.0)[None, :]
    envelope, slope = _envelope(r, rcut, TERMS)
    wave = tl.sin(f * r) / r
    wave_slope = (f * tl.cos(f * r) - wave) / r
    return wave * envelope, wave_slope * envelope + wave * slope


@triton.jit
def _hidden_layer(
    basis,
    hidden,
    hidden_bias,
    norm_scale,
    norm_eps,
    N_BASIS: tl.constexpr,
    N_HIDDEN: tl.constexpr,
    HIDDEN: tl.constexpr,
):
    """Hidden layer before its norm, (BLOCK, HIDDEN), and the two factors of the norm."""
    BASIS: tl.constexpr = basis.shape[1]
    column = tl.arange(0, HIDDEN)
    table = _table(hidden, tl.arange(0, BASIS), column, N_BASIS, N_HIDDEN)
    before = tl.dot(basis, table, input_precision="ieee")
    if hidden_bias is not None:
        before += tl.load(hidden_bias + column, mask=column < N_HIDDEN, other=0.0)[
            None, :
        ]
    scale = tl.full((1, HIDDEN), 1.0, tl.float32)
    inverse = tl.full((basis.shape[0], 1), 1.0, tl.float32)
    if norm_scale is not None:
        scale = tl.load(norm_scale + column, mask=column < N_HIDDEN, other=0.0)[None, :]
        mean = tl.sum(before * before, axis=1)[:, None] / N_HIDDEN
        inverse = 1 / tl.sqrt(mean + norm_eps)
    return before, scale, inverse


@triton.jit
def _feature_columns(
    active, out, out_bias, column, N_HIDDEN: tl.constexpr, N_OUT: tl.constexpr
):
    table = _table(out, tl.arange(0, active.shape[1]), column, N_HIDDEN, N_OUT)
    values = tl.dot(active, table, input_precision="ieee")
    if out_bias is not None:
        values += tl.load(out_bias + column)[None, :]
    return values


@triton.jit
def _table(matrix, row, column, N_ROWS: tl.constexpr, N_COLUMNS: tl.constexpr):
    """A tile of a matrix, zero outside."""
    inside = (row < N_ROWS)[:, None] & (column < N_COLUMNS)[None, :]
    at = row[:, None] * N_COLUMNS + column[None, :]
    return tl.load(matrix + at, mask=inside, other=0.0)
