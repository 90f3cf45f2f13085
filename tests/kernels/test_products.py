"""Products of float32 numbers split into parts, on a CUDA device or interpreted."""

import pytest
import torch
import triton
import triton.language as tl
from dp_calc.kernels.products import PRECISIONS, multiply, split

pytestmark = pytest.mark.gpu

FLOAT32 = 1e-6
SPLIT = ("ieee", "tf32x3", "bf16x6", "fp16x3")
EACH_PRECISION = pytest.mark.parametrize("precision", SPLIT)
M, K, N = 32, 64, 16


@triton.jit
def product_kernel(
    left,
    weight,
    out,
    M: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    row, k, column = tl.arange(0, M)[:, None], tl.arange(0, K), tl.arange(0, N)[None, :]
    total = tl.load(out + row * N + column)
    values = tl.load(left + row * K + k[None, :])
    at = k[:, None] * N + column
    total = multiply(values, weight, at, K * N, total, PRECISION)
    tl.store(out + row * N + column, total)


def product(left, weight, precision, total=None):
    out = left.new_zeros(M, N) if total is None else total.clone()
    parts = split(weight, precision)
    product_kernel[(1,)](left, parts, out, M=M, K=K, N=N, PRECISION=precision)
    return out


def factors(device):
    generator = torch.Generator().manual_seed(5)
    shapes = ((M, K), (K, N), (M, N))
    return [torch.randn(s, generator=generator).to(device) for s in shapes]


def check_rows(result, expected, tolerance=FLOAT32):
    """Each row to its own size."""
    error = (result.double() - expected).abs().amax(1)
    assert (error <= tolerance * expected.abs().amax(1)).all()


@EACH_PRECISION
def test_product_is_added(precision, device):
    left, weight, total = factors(device)
    expected = total.double() + left.double() @ weight.double()
    check_rows(product(left, weight, precision, total), expected)


def test_tf32_is_what_it_says(device):
    left, weight, _ = factors(device)
    tolerance = FLOAT32 if device == "cpu" else 4e-3  # the interpreter does not round
    expected = left.double() @ weight.double()
    check_rows(product(left, weight, "tf32"), expected, tolerance)


@EACH_PRECISION
def test_rows_of_any_size(precision, device):
    left, weight, _ = factors(device)
    left = left * torch.logspace(-30, 30, M, device=device)[:, None]
    left[7] = 0
    result = product(left, weight, precision)
    assert not result[7].any()
    check_rows(result, left.double() @ weight.double())


@EACH_PRECISION
def test_large_and_tiny_numbers_in_one_row(precision, device):
    left, weight, _ = factors(device)
    left = left * torch.logspace(-20, 0, K, device=device)
    check_rows(product(left, weight, precision), left.double() @ weight.double())


@EACH_PRECISION
@pytest.mark.parametrize("size", [1e38, 2e38, 3.4e38])
def test_rows_up_to_the_largest_number(size, precision, device):
    left, weight, _ = factors(device)
    left = left / left.abs().amax(1, keepdim=True) * size
    weight = weight / 1e3
    check_rows(product(left, weight, precision), left.double() @ weight.double())


@EACH_PRECISION
def test_weights_up_to_the_largest(precision, device):
    left, weight, _ = factors(device)
    weight = weight * (65000 / weight.abs().max())
    check_rows(product(left, weight, precision), left.double() @ weight.double())


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # interpreter
@pytest.mark.parametrize("size", [7e4, 1e10])
def test_weights_beyond_the_range_of_float16_show(size, device):
    left, weight, _ = factors(device)
    weight[5, 3] = size
    result = product(left, weight, "fp16x3")
    assert not result[:, 3].isfinite().any()
    others = [i for i in range(N) if i != 3]
    check_rows(result[:, others], (left.double() @ weight.double())[:, others])


@EACH_PRECISION
def test_small_weights(precision, device):
    left, weight, _ = factors(device)
    weight = weight * 1e-3
    check_rows(product(left, weight, precision), left.double() @ weight.double())


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # interpreter
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_stays_in_its_row(poison, precision, device):
    left, weight, _ = factors(device)
    sound = product(left, weight, precision)
    left[11, 5] = poison
    result = product(left, weight, precision)
    assert not result[11].isfinite().any()
    result[11] = sound[11]
    assert torch.equal(result, sound)


@pytest.mark.parametrize(
    ("precision", "n_parts", "scale"),
    [("bf16x6", 3, 1.0), ("fp16x3", 2, 2.0**-11), ("tf32x3", 1, 1.0), ("ieee", 1, 1.0)],
)
def test_parts_add_up(precision, n_parts, scale):
    weight = factors("cpu")[1]
    before = weight.clone()
    parts = split(weight, precision)
    assert parts.shape == (n_parts, *weight.shape)
    assert parts.is_contiguous()
    assert torch.equal(weight, before)
    factor = [1.0, *[scale] * (n_parts - 1)]
    total = sum(f * part.double() for f, part in zip(factor, parts, strict=True))
    torch.testing.assert_close(total, weight.double(), rtol=3e-7, atol=1e-10)


@EACH_PRECISION
def test_parts_of_strided_weights(precision):
    weight = factors("cpu")[1]
    parts = split(weight.T, precision)
    assert parts.is_contiguous()
    assert torch.equal(parts, split(weight.T.contiguous(), precision))
