"""Rows of the Wigner matrices of edges from polynomials in their directions."""

import triton
import triton.language as tl

from ..directions import direction

__all__ = ["frames_backward_kernel", "frames_kernel"]


@triton.jit
def frames_kernel(
    vec,
    powers,
    coefficients,
    step,
    frames,
    n_edges,
    eps_squared,
    LMAX: tl.constexpr,
    N_MONOMIALS: tl.constexpr,
    MONOMIALS: tl.constexpr,
    PACKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Orders 0, -1 and +1 of each edge, (E, 3, D), for BLOCK edges.

    MONOMIALS and PACKED are the numbers of monomials and of harmonics rounded up to
    powers of two.
    """
    N_PACKED: tl.constexpr = (LMAX + 1) * (LMAX + 1)
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    packed = tl.arange(0, PACKED)
    x, y, z, _ = direction(vec, edge, n_edges, eps_squared)
    first, second = _axes(x, y, z)
    monomials = _monomials(x, y, z, powers, LMAX, N_MONOMIALS, MONOMIALS)
    target = frames + edge[:, None] * (3 * N_PACKED) + packed[None, :]
    inside = (edge < n_edges)[:, None] & (packed < N_PACKED)[None, :]
    harmonics = _evaluate(monomials, coefficients, 0, N_PACKED, N_MONOMIALS, PACKED)
    tl.store(target, harmonics, mask=inside)
    minus = tl.zeros((BLOCK, PACKED), tl.float32)
    plus = tl.zeros((BLOCK, PACKED), tl.float32)
    for k in tl.static_range(3):
        turned = _evaluate(monomials, coefficients, k + 1, N_PACKED, N_MONOMIALS, PACKED)
        minus += first[k] * turned
        plus += second[k] * turned
    factor = tl.load(step + packed, mask=packed < N_PACKED, other=0.0)[None, :]
    tl.store(target + N_PACKED, factor * minus, mask=inside)
    tl.store(target + 2 * N_PACKED, factor * plus, mask=inside)


@triton.jit
def frames_backward_kernel(
    vec,
    powers,
    coefficients,
    step,
    grad,
    of_vec,
    n_edges,
    eps_squared,
    LMAX: tl.constexpr,
    N_MONOMIALS: tl.constexpr,
    MONOMIALS: tl.constexpr,
    PACKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradient of the edge vectors from that of the rows above."""
    N_PACKED: tl.constexpr = (LMAX + 1) * (LMAX + 1)
    edge = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    packed = tl.arange(0, PACKED)
    x, y, z, length = direction(vec, edge, n_edges, eps_squared)
    first, second = _axes(x, y, z)
    monomials = _monomials(x, y, z, powers, LMAX, N_MONOMIALS, MONOMIALS)
    source = grad + edge[:, None] * (3 * N_PACKED) + packed[None, :]
    inside = (edge < n_edges)[:, None] & (packed < N_PACKED)[None, :]
    factor = tl.load(step + packed, mask=packed < N_PACKED, other=0.0)[None, :]
    of_harmonics = tl.load(source, mask=inside, other=0.0)
    of_minus = factor * tl.load(source + N_PACKED, mask=inside, other=0.0)
    of_plus = factor * tl.load(source + 2 * N_PACKED, mask=inside, other=0.0)

    of_monomials = _pull_back(
        of_harmonics, coefficients, 0, N_PACKED, N_MONOMIALS, MONOMIALS, PACKED
    )
    # Along the direction lies all that the axes gain when it moves.
    along_first = tl.zeros((BLOCK, 1), tl.float32)
    along_second = tl.zeros((BLOCK, 1), tl.float32)
    unit = (x, y, z)
    for k in tl.static_range(3):
        turned = _evaluate(monomials, coefficients, k + 1, N_PACKED, N_MONOMIALS, PACKED)
        along_first += unit[k] * tl.sum(of_minus * turned, axis=1)[:, None]
        along_second += unit[k] * tl.sum(of_plus * turned, axis=1)[:, None]
        of_turned = first[k] * of_minus + second[k] * of_plus
        of_monomials += _pull_back(
            of_turned, coefficients, k + 1, N_PACKED, N_MONOMIALS, MONOMIALS, PACKED
        )
    of_x, of_y, of_z = _pull_to_direction(
        of_monomials, x, y, z, powers, LMAX, N_MONOMIALS, MONOMIALS
    )
    of_x -= along_first * first[0] + along_second * second[0]
    of_y -= along_first * first[1] + along_second * second[1]
    of_z -= along_first * first[2] + along_second * second[2]
    radial = of_x * x + of_y * y + of_z * z
    at = of_vec + edge[:, None] * 3
    real = (edge < n_edges)[:, None]
    tl.store(at, (of_x - radial * x) / length, mask=real)
    tl.store(at + 1, (of_y - radial * y) / length, mask=real)
    tl.store(at + 2, (of_z - radial * z) / length, mask=real)


@triton.jit
def _axes(x, y, z):
    """First and second axis of the frame, see ``reference``."""
    s = tl.where(z > -0.5, 1.0, -1.0)
    d = 1 + s * z
    first = (s * (1 - x * x / d), -s * x * y / d, -x)
    second = (-x * y / d, 1 - y * y / d, -s * y)
    return first, second


@triton.jit
def _power(x, exponent, LMAX: tl.constexpr):
    result = tl.where(exponent >= 0, 1.0, 0.0) + tl.zeros_like(x)
    for i in tl.static_range(1, LMAX + 1):
        result *= tl.where(exponent >= i, x, 1.0)
    return result


@triton.jit
def _exponents(powers, k, N_MONOMIALS: tl.constexpr, MONOMIALS: tl.constexpr):
    column = tl.arange(0, MONOMIALS)
    at = powers + k * N_MONOMIALS + column
    return tl.load(at, mask=column < N_MONOMIALS, other=0)[None, :]


@triton.jit
def _monomials(
    x,
    y,
    z,
    powers,
    LMAX: tl.constexpr,
    N_MONOMIALS: tl.constexpr,
    MONOMIALS: tl.constexpr,
):
    a = _exponents(powers, 0, N_MONOMIALS, MONOMIALS)
    b = _exponents(powers, 1, N_MONOMIALS, MONOMIALS)
    c = _exponents(powers, 2, N_MONOMIALS, MONOMIALS)
    return _power(x, a, LMAX) * _power(y, b, LMAX) * _power(z, c, LMAX)


@triton.jit
def _pull_to_direction(
    grad,
    x,
    y,
    z,
    powers,
    LMAX: tl.constexpr,
    N_MONOMIALS: tl.constexpr,
    MONOMIALS: tl.constexpr,
):
    a = _exponents(powers, 0, N_MONOMIALS, MONOMIALS)
    b = _exponents(powers, 1, N_MONOMIALS, MONOMIALS)
    c = _exponents(powers, 2, N_MONOMIALS, MONOMIALS)
    of_a, of_b, of_c = _power(x, a, LMAX), _power(y, b, LMAX), _power(z, c, LMAX)
    by_x = a * _power(x, a - 1, LMAX) * of_b * of_c
    by_y = b * _power(y, b - 1, LMAX) * of_a * of_c
    by_z = c * _power(z, c - 1, LMAX) * of_a * of_b
    of_x = tl.sum(grad * by_x, axis=1)[:, None]
    of_y = tl.sum(grad * by_y, axis=1)[:, None]
    return of_x, of_y, tl.sum(grad * by_z, axis=1)[:, None]


@triton.jit
def _table(
    coefficients,
    k,
    N_PACKED: tl.constexpr,
    N_MONOMIALS: tl.constexpr,
    MONOMIALS: tl.constexpr,
    PACKED: tl.constexpr,
):
    row, column = tl.arange(0, MONOMIALS)[:, None], tl.arange(0, PACKED)[None, :]
    inside = (row < N_MONOMIALS) & (column < N_PACKED)
    at = (k * N_MONOMIALS + row) * N_PACKED + column
    return tl.load(coefficients + at, mask=inside, other=0.0)


@triton.jit
def _evaluate(
    monomials,
    coefficients,
    k,
    N_PACKED: tl.constexpr,
    N_MONOMIALS: tl.constexpr,
    PACKED: tl.constexpr,
):
    MONOMIALS: tl.constexpr = monomials.shape[1]
    table = _table(coefficients, k, N_PACKED, N_MONOMIALS, MONOMIALS, PACKED)
    return tl.dot(monomials, table, input_precision="ieee")


@triton.jit
def _pull_back(
    grad,
    coefficients,
    k,
    N_PACKED: tl.constexpr,
    N_MONOMIALS: tl.constexpr,
    MONOMIALS: tl.constexpr,
    PACKED: tl.constexpr,
):
    table = _table(coefficients, k, N_PACKED, N_MONOMIALS, MONOMIALS, PACKED)
    return tl.dot(grad, tl.trans(table), input_precision="ieee")
