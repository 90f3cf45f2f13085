"""Triton kernels of the tabulated operators.

All operators are derivatives of one form, linear in a, f and u, with the order of the
derivative of the spline g counted by d:

    F = sum_ijdmk  w_ij a_ijdm f_ijk u_imk g_k^(d)(x_ij)

Each kernel is the derivative of F by one of u, a, f and sums over what is left. The
derivative of F by x has the same form with d + 1 in place of d, so three kernels give
every order of derivative. Each sum is done by one program in a fixed order.

Tensors are x (nloc, nnei), a (nloc, nnei, ORDERS, M) for the orders d from LOW on,
f (nloc, nnei, K), u (nloc, M, K); absent f and u are ones. ``slot`` counts the slots j of
all atoms i. ``stop`` (nloc,) is the folded slot of each atom, absent if none is folded.
The domain comes as float64 numbers and is rounded to the dtype of x, which is exact.
"""

# ruff: noqa: RUF005 - Triton does not know starred tuples

import triton
import triton.language as tl

__all__ = ["sum_channels_kernel", "sum_components_kernel", "sum_neighbors_kernel"]


@triton.jit
def _locate(x, domain, rows):
    """Row, local coordinate and overhang of x, and whether it is outside."""
    left = tl.full([], domain[0], x.dtype)
    lower = tl.full([], domain[1], x.dtype)
    upper = tl.full([], domain[2], x.dtype)
    right = tl.full([], domain[3], x.dtype)
    fine = tl.full([], domain[4], x.dtype)
    coarse = tl.full([], domain[5], x.dtype)
    wing, middle, count = rows
    outside = (x < left) | (x >= right)
    z = tl.where(x < left, left, tl.where(x >= right, right, x))
    start = tl.where(z < lower, left, tl.where(z < upper, lower, upper))
    stride = tl.where((z < lower) | (z >= upper), coarse, fine)
    first = tl.where(z < lower, 0, tl.where(z < upper, wing, wing + middle))
    # The plain division of float32 is not rounded as IEEE asks, and would now and then
    # pick another row than the CPU does.
    if x.dtype == tl.float32:
        quotient = tl.div_rn(z - start, stride)
    else:
        quotient = (z - start) / stride
    row = first + quotient.to(tl.int32)
    row = tl.minimum(tl.maximum(row, 0), count - 1)
    tau = z - ((row - first).to(x.dtype) * stride + start)
    return row.to(tl.int64), tau, x - z, outside


@triton.jit
def _polynomial(c, t, ORDER: tl.constexpr):
    """Derivative of the given order of a polynomial of degree five."""
    for _ in tl.static_range(ORDER):
        zero = tl.full(c[5].shape, 0.0, c[5].dtype)
        c = (c[1], 2 * c[2], 3 * c[3], 4 * c[4], 5 * c[5], zero)
    return c[0] + t * (c[1] + t * (c[2] + t * (c[3] + t * (c[4] + t * c[5]))))


@triton.jit
def _spline(c, place, ORDER: tl.constexpr):
    """g^(ORDER), continued as a straight line outside the domain."""
    tau, delta, outside = place
    value = _polynomial(c, tau[:, None], ORDER)
    if ORDER == 0:
        value += _polynomial(c, tau[:, None], 1) * delta[:, None]
    if ORDER > 1:
        value = tl.where(outside[:, None], 0.0, value)
    return value


@triton.jit
def _coefficients(planes, row, k, mask, K: tl.constexpr):
    at = planes + row[:, None] * (6 * K) + k[None, :]
    return (
        tl.load(at, mask=mask, other=0.0),
        tl.load(at + K, mask=mask, other=0.0),
        tl.load(at + 2 * K, mask=mask, other=0.0),
        tl.load(at + 3 * K, mask=mask, other=0.0),
        tl.load(at + 4 * K, mask=mask, other=0.0),
        tl.load(at + 5 * K, mask=mask, other=0.0),
    )


@triton.jit
def _factor(factor, slot, k, mask, K: tl.constexpr, PLUS_ONE: tl.constexpr):
    f = tl.load(factor + slot[:, None] * K + k[None, :], mask=mask, other=0.0)
    if PLUS_ONE:
        f += 1
    return f


@triton.jit
def _weight(stop, atom, j, nnei, dtype: tl.constexpr):
    """How often slot j counts, and whether it counts at all."""
    if stop is None:
        return (j < nnei).to(dtype), j < nnei
    else:
        last = tl.load(stop + atom)
        return tl.where(j == last, nnei - last, 1).to(dtype), (j < nnei) & (j <= last)


@triton.jit(do_not_specialize=["nnei", "splits", "wing", "middle", "rows"])
def sum_neighbors_kernel(
    out,  # (nloc, splits, M, K)
    planes,  # (rows, 6, K)
    x,
    a,
    f,
    stop,
    nnei,
    splits,
    left: tl.float64,
    lower: tl.float64,
    upper: tl.float64,
    right: tl.float64,
    fine: tl.float64,
    coarse: tl.float64,
    wing,
    middle,
    rows,
    LOW: tl.constexpr,
    ORDERS: tl.constexpr,
    M: tl.constexpr,
    K: tl.constexpr,
    PLUS_ONE: tl.constexpr,
    CHUNK: tl.constexpr,  # slots of one program
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """dF/du of (atom, chunk of slots, block of channels)."""
    dtype: tl.constexpr = x.dtype.element_ty
    domain = (left, lower, upper, right, fine, coarse)
    blocks: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    program = tl.program_id(0).to(tl.int64)
    part = program // blocks
    atom = part // splits
    begin = (part % splits) * CHUNK
    end = tl.minimum(begin + CHUNK, nnei)
    if stop is not None:
        end = tl.minimum(end, tl.load(stop + atom) + 1)
    k = (program % blocks) * BLOCK_K + tl.arange(0, BLOCK_K)
    total = ()
    for _ in tl.static_range(M):
        total = total + (tl.full([BLOCK_J, BLOCK_K], 0.0, dtype),)
    for j0 in range(begin, end, BLOCK_J):
        j = j0 + tl.arange(0, BLOCK_J)
        slot = atom * nnei + j
        weight, live = _weight(stop, atom, j, nnei, dtype)
        live = live & (j < end)
        row, tau, delta, outside = _locate(
            tl.load(x + slot, mask=live, other=0.0), domain, (wing, middle, rows)
        )
        mask = live[:, None] & (k < K)[None, :]
        c = _coefficients(planes, row, k, mask, K)
        w = weight[:, None]
        if f is not None:
            w = w * _factor(f, slot, k, mask, K, PLUS_ONE)
        for d in tl.static_range(ORDERS):
            g = w * _spline(c, (tau, delta, outside), LOW + d)
            new = ()
            for m in tl.static_range(M):
                am = tl.load(a + (slot * ORDERS + d) * M + m, mask=live, other=0.0)
                new = new + (total[m] + am[:, None] * g,)
            total = new
    at = out + part * (M * K) + k
    for m in tl.static_range(M):
        tl.store(at + m * K, tl.sum(total[m], axis=0), mask=k < K)


@triton.jit(do_not_specialize=["nnei", "wing", "middle", "rows"])
def sum_channels_kernel(
    out,  # (nloc, nnei, ORDERS, M)
    planes,  # (rows, 6, K)
    x,
    f,
    u,
    stop,
    nnei,
    left: tl.float64,
    lower: tl.float64,
    upper: tl.float64,
    right: tl.float64,
    fine: tl.float64,
    coarse: tl.float64,
    wing,
    middle,
    rows,
    LOW: tl.constexpr,
    ORDERS: tl.constexpr,
    M: tl.constexpr,
    K: tl.constexpr,
    PLUS_ONE: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """dF/da of (atom, block of slots)."""
    dtype: tl.constexpr = x.dtype.element_ty
    domain = (left, lower, upper, right, fine, coarse)
    blocks = (nnei + BLOCK_J - 1) // BLOCK_J
    program = tl.program_id(0).to(tl.int64)
    atom = program // blocks
    j = (program % blocks) * BLOCK_J + tl.arange(0, BLOCK_J)
    slot = atom * nnei + j
    weight, live = _weight(stop, atom, j, nnei, dtype)
    row, tau, delta, outside = _locate(
        tl.load(x + slot, mask=live, other=0.0), domain, (wing, middle, rows)
    )
    total = ()
    for _ in tl.static_range(ORDERS * M):
        total = total + (tl.full([BLOCK_J, BLOCK_K], 0.0, dtype),)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        mask = live[:, None] & (k < K)[None, :]
        c = _coefficients(planes, row, k, mask, K)
        if f is not None:
            factor = _factor(f, slot, k, mask, K, PLUS_ONE)
        new = ()
        for d in tl.static_range(ORDERS):
            g = _spline(c, (tau, delta, outside), LOW + d)
            if f is not None:
                g = g * factor
            for m in tl.static_range(M):
                if u is not None:
                    um = tl.load(u + (atom * M + m) * K + k, mask=k < K, other=0.0)
                    new = new + (total[d * M + m] + g * um[None, :],)
                else:
                    new = new + (total[d * M + m] + g,)
        total = new
    for n in tl.static_range(ORDERS * M):
        value = tl.where(live, weight * tl.sum(total[n], axis=1), 0.0)
        tl.store(out + slot * (ORDERS * M) + n, value, mask=j < nnei)


@triton.jit(do_not_specialize=["nnei", "wing", "middle", "rows"])
def sum_components_kernel(
    out,  # (nloc, nnei, K)
    planes,  # (rows, 6, K)
    x,
    a,
    u,
    stop,
    nnei,
    left: tl.float64,
    lower: tl.float64,
    upper: tl.float64,
    right: tl.float64,
    fine: tl.float64,
    coarse: tl.float64,
    wing,
    middle,
    rows,
    LOW: tl.constexpr,
    ORDERS: tl.constexpr,
    M: tl.constexpr,
    K: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """dF/df of (atom, block of slots)."""
    dtype: tl.constexpr = x.dtype.element_ty
    domain = (left, lower, upper, right, fine, coarse)
    blocks = (nnei + BLOCK_J - 1) // BLOCK_J
    program = tl.program_id(0).to(tl.int64)
    atom = program // blocks
    j = (program % blocks) * BLOCK_J + tl.arange(0, BLOCK_J)
    slot = atom * nnei + j
    weight, live = _weight(stop, atom, j, nnei, dtype)
    row, tau, delta, outside = _locate(
        tl.load(x + slot, mask=live, other=0.0), domain, (wing, middle, rows)
    )
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        mask = live[:, None] & (k < K)[None, :]
        c = _coefficients(planes, row, k, mask, K)
        value = tl.full([BLOCK_J, BLOCK_K], 0.0, dtype)
        for d in tl.static_range(ORDERS):
            s = tl.full([BLOCK_J, BLOCK_K], 0.0, dtype)
            for m in tl.static_range(M):
                am = tl.load(a + (slot * ORDERS + d) * M + m, mask=live, other=0.0)
                if u is not None:
                    um = tl.load(u + (atom * M + m) * K + k, mask=k < K, other=0.0)
                    s += am[:, None] * um[None, :]
                else:
                    s += am[:, None]
            value += s * _spline(c, (tau, delta, outside), LOW + d)
        value = tl.where(live[:, None], weight[:, None] * value, 0.0)
        at = out + slot[:, None] * K + k[None, :]
        tl.store(at, value, mask=(j < nnei)[:, None] & (k < K)[None, :])
