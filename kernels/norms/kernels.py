"""The kernels: a program reads what it norms once, and saves nothing for the backward."""

import triton
import triton.language as tl

__all__ = [
    "balanced_norm_backward_kernel",
    "balanced_norm_kernel",
    "stream_norm_backward_kernel",
    "stream_norm_kernel",
]


@triton.jit
def balanced_norm_kernel(
    x,
    balance,
    scale,
    bias,
    out,
    eps,
    x_stride,
    N_ROWS: tl.constexpr,
    N_CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """All rows of one atom: x (N, D, C) with the atoms ``x_stride`` apart."""
    node = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, ROWS)[:, None]
    channel = tl.arange(0, CHANNELS)[None, :]
    real = (row < N_ROWS) & (channel < N_CHANNELS)
    at = row * N_CHANNELS + channel
    values = tl.load(x + node * x_stride + at, mask=real, other=0.0)
    centred, inverse = _centred(values, balance, eps, row, real, N_ROWS, N_CHANNELS)
    result = centred * inverse * tl.load(scale + at, mask=real, other=0.0)
    shift = tl.load(bias + channel, mask=channel < N_CHANNELS, other=0.0)
    result += tl.where(row == 0, shift, 0.0)
    tl.store(out + node * (N_ROWS * N_CHANNELS) + at, result, mask=real)


@triton.jit
def balanced_norm_backward_kernel(
    grad,
    x,
    balance,
    scale,
    out,
    eps,
    x_stride,
    N_ROWS: tl.constexpr,
    N_CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Gradient of ``x`` from that of the result, both (N, D, C) and contiguous."""
    node = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, ROWS)[:, None]
    channel = tl.arange(0, CHANNELS)[None, :]
    real = (row < N_ROWS) & (channel < N_CHANNELS)
    at = row * N_CHANNELS + channel
    own = node * (N_ROWS * N_CHANNELS) + at
    values = tl.load(x + node * x_stride + at, mask=real, other=0.0)
    centred, inverse = _centred(values, balance, eps, row, real, N_ROWS, N_CHANNELS)
    pulled = tl.load(grad + own, mask=real, other=0.0)
    pulled *= tl.load(scale + at, mask=real, other=0.0)
    along = tl.sum(tl.sum(pulled * centred, axis=1), axis=0)
    weight = tl.load(balance + row, mask=row < N_ROWS, other=0.0)
    result = inverse * (pulled - centred * weight * (along * inverse * inverse))
    # The scalar row was centred, so its gradient is.
    mean = tl.sum(tl.sum(tl.where(row == 0, result, 0.0), axis=1), axis=0) / N_CHANNELS
    result -= tl.where(row == 0, mean, 0.0)
    tl.store(out + own, result, mask=real)


@triton.jit
def _centred(
    values,
    balance,
    eps,
    row,
    real,
    N_ROWS: tl.constexpr,
    N_CHANNELS: tl.constexpr,
):
    """Rows of which the first is centred, and one over their balanced norm."""
    mean = tl.sum(tl.sum(tl.where(row == 0, values, 0.0), axis=1), axis=0) / N_CHANNELS
    centred = tl.where(real, values - tl.where(row == 0, mean, 0.0), 0.0)
    squares = tl.sum(centred * centred, axis=1)[:, None]
    weight = tl.load(balance + row, mask=row < N_ROWS, other=0.0)
    variance = tl.sum(tl.sum(squares * weight, axis=1), axis=0)
    return centred, 1 / tl.sqrt_rn(variance + eps)


@triton.jit
def stream_norm_kernel(
    x,
    scale,
    out,
    eps,
    n_rows,
    x_stream,
    x_row,
    N_CHANNELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Some rows of one stream: x (F, B, C) with strides ``x_stream`` and ``x_row``."""
    stream = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    channel = tl.arange(0, CHANNELS)[None, :]
    real = (row < n_rows) & (channel < N_CHANNELS)
    there = x + stream * x_stream + row * x_row + channel
    values = tl.load(there, mask=real, other=0.0)
    inverse = _inverse_root(values, eps, N_CHANNELS)
    at = stream * N_CHANNELS + channel
    gain = tl.load(scale + at, mask=channel < N_CHANNELS, other=0.0)
    own = (stream * n_rows + row) * N_CHANNELS + channel
    tl.store(out + own, values * inverse * gain, mask=real)


@triton.jit
def stream_norm_backward_kernel(
    grad,
    x,
    scale,
    out,
    eps,
    n_rows,
    x_stream,
    x_row,
    N_CHANNELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradient of ``x`` from that of the result, both (F, B, C) and contiguous."""
    stream = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    channel = tl.arange(0, CHANNELS)[None, :]
    real = (row < n_rows) & (channel < N_CHANNELS)
    there = x + stream * x_stream + row * x_row + channel
    values = tl.load(there, mask=real, other=0.0)
    inverse = _inverse_root(values, eps, N_CHANNELS)
    at = stream * N_CHANNELS + channel
    own = (stream * n_rows + row) * N_CHANNELS + channel
    pulled = tl.load(grad + own, mask=real, other=0.0)
    pulled *= tl.load(scale + at, mask=channel < N_CHANNELS, other=0.0)
    along = tl.sum(pulled * values, axis=1)[:, None] / N_CHANNELS
    result = inverse * (pulled - values * (along * inverse * inverse))
    tl.store(out + own, result, mask=real)


@triton.jit
def _inverse_root(values, eps, N_CHANNELS: tl.constexpr):
    """One over the root of the mean square of each row, (B, 1)."""
    return 1 / tl.sqrt_rn(tl.sum(values * values, axis=1)[:, None] / N_CHANNELS + eps)
