"""The kernels: a program does all coefficients of one atom."""

import triton
import triton.language as tl

__all__ = ["scalar_path_backward_kernel", "scalar_path_kernel"]


@triton.jit
def scalar_path_kernel(
    product,
    scalars,
    gate,
    out,
    N_ROWS: tl.constexpr,
    N_CHANNELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Out = product * sigmoid(gate), and silu(left) * right more on row 0.

    ``product`` is (B, K, C), ``scalars`` holds left and right, (B, 2 C), ``gate`` (B, C).
    """
    node = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, CHANNELS)[None, :]
    there = channel < N_CHANNELS
    factor = tl.sigmoid(
        tl.load(gate + node * N_CHANNELS + channel, mask=there, other=0.0)
    )
    left, right = _two_scalars(scalars, node, channel, N_CHANNELS)
    scalar = left * tl.sigmoid(left) * right
    own = node * (N_ROWS * N_CHANNELS) + channel
    for start in range(0, N_ROWS, BLOCK):
        row = start + tl.arange(0, BLOCK)[:, None]
        real = (row < N_ROWS) & there
        at = own + row * N_CHANNELS
        values = tl.load(product + at, mask=real, other=0.0) * factor
        values += tl.where(row == 0, scalar, 0.0)
        tl.store(out + at, values, mask=real)


@triton.jit
def scalar_path_backward_kernel(
    grad,
    product,
    scalars,
    gate,
    of_product,
    of_scalars,
    of_gate,
    N_ROWS: tl.constexpr,
    N_CHANNELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradients of what went in, from that of the result."""
    node = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, CHANNELS)[None, :]
    there = channel < N_CHANNELS
    factor = tl.sigmoid(
        tl.load(gate + node * N_CHANNELS + channel, mask=there, other=0.0)
    )
    own = node * (N_ROWS * N_CHANNELS) + channel
    along = tl.zeros((BLOCK, CHANNELS), tl.float32)
    for start in range(0, N_ROWS, BLOCK):
        row = start + tl.arange(0, BLOCK)[:, None]
        real = (row < N_ROWS) & there
        at = own + row * N_CHANNELS
        pulled = tl.load(grad + at, mask=real, other=0.0)
        along += pulled * tl.load(product + at, mask=real, other=0.0)
        tl.store(of_product + at, pulled * factor, mask=real)
    opening = tl.sum(along, axis=0)[None, :] * factor * (1 - factor)
    tl.store(of_gate + node * N_CHANNELS + channel, opening, mask=there)
    pulled = tl.load(grad + own, mask=there, other=0.0)
    left, right = _two_scalars(scalars, node, channel, N_CHANNELS)
    sigmoid = tl.sigmoid(left)
    slope = sigmoid * (1 + left * (1 - sigmoid))
    of_left = of_scalars + node * (2 * N_CHANNELS) + channel
    tl.store(of_left, pulled * right * slope, mask=there)
    tl.store(of_left + N_CHANNELS, pulled * left * sigmoid, mask=there)


@triton.jit
def _two_scalars(scalars, node, channel, N_CHANNELS: tl.constexpr):
    """Those of both fields, (1, C) each."""
    at = scalars + node * (2 * N_CHANNELS) + channel
    there = channel < N_CHANNELS
    left = tl.load(at, mask=there, other=0.0)
    return left, tl.load(at + N_CHANNELS, mask=there, other=0.0)
