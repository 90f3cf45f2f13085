"""Matrix products of float32 numbers on tensor cores, to the accuracy of float32.

Tensor cores multiply short numbers. A float32 number is split into a sum of such, and the
products of the parts that count are added up:

- ``bf16x6``: three parts of 8 bits in bfloat16, which has the range of float32; the six
  largest of the nine products.
- ``fp16x3``: two parts of 11 bits in float16; three of the four products. Its range is
  small, so each row of the left factor is scaled by a power of two: no finite input can
  overflow, whatever its size.
- ``tf32x3``: the same with TF32, done by the compiler.
- ``ieee``: plain float32 arithmetic, without tensor cores.
- ``tf32``: one product of numbers rounded to 11 bits. Not to the accuracy of float32.

Weights are split once, by :func:`split`; the left factor is split in the kernel.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["INTERPRETED", "PRECISIONS", "multiply", "split"]

PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x6", "fp16x3")

_SHIFT = tl.constexpr(2.0**11)
"""Factor on the second part of a number in float16, which would else lose its range."""


def split(weight: Tensor, precision: str) -> Tensor:
    """Parts of a matrix for :func:`multiply`, (...) -> (parts, ...) float32 or shorter.

    Args:
        weight: float32 numbers; for ``fp16x3`` below 65504.
        precision: one of ``PRECISIONS``.
    """
    if precision == "bf16x6":
        parts = []
        for _ in range(3):
            parts.append(weight.bfloat16())
            weight = weight - parts[-1].float()
        return torch.stack(parts)
    if precision == "fp16x3":
        first = weight.half()
        return torch.stack([first, ((weight - first.float()) * _SHIFT.value).half()])
    return weight[None].contiguous()


@triton.jit
def multiply(left, weight, offsets, part_size, total, PRECISION: tl.constexpr):
    """``total + left @ W`` for a tile of each.

    Args:
        left: float32 numbers, (M, K).
        weight: pointer to the parts of W from ``split``.
        offsets: where the tile of W is in each part, (K, N).
        part_size: numbers in each part.
        total: float32, (M, N).
        PRECISION: as for ``split``.
    """
    if PRECISION == "bf16x6":
        total = _bf16x6(left, weight, offsets, part_size, total)
    elif PRECISION == "fp16x3":
        total = _fp16x3(left, weight, offsets, part_size, total)
    else:
        right = tl.load(weight + offsets)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    return total


@triton.jit
def _bf16x6(left, weight, offsets, part_size, total):
    # Cut off and not rounded, three parts of 8 bits are all of the 24 bits of float32.
    leading = _leading_bits(left)
    rest = left - leading
    middle = _leading_bits(rest)
    first, second = leading.to(tl.bfloat16), middle.to(tl.bfloat16)
    third = (rest - middle).to(tl.bfloat16)
    w_first = tl.load(weight + offsets)
    w_second = tl.load(weight + part_size + offsets)
    w_third = tl.load(weight + 2 * part_size + offsets)
    # Tensor cores cut off the end of a sum where others round it: sums are kept short and
    # added up outside, the small products by themselves.
    nothing = tl.zeros_like(total)
    small = _dot(third, w_first, nothing)
    small = _dot(second, w_second, small)
    small = _dot(first, w_third, small)
    small = _dot(second, w_first, small)
    small = _dot(first, w_second, small)
    return total + (_dot(first, w_first, nothing) + small)


@triton.jit
def _leading_bits(x):
    """What bfloat16 holds of float32 numbers, the rest cut off."""
    return (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _fp16x3(left, weight, offsets, part_size, total):
    # The exponent of each row's largest number, as the power of two with that exponent;
    # infinity and NaN give infinity, which ends in a result that is not finite.
    largest = tl.max(tl.abs(left), axis=1)
    exponent = largest.to(tl.int32, bitcast=True) & 0x7F800000
    # The inverse of 2^127 would be subnormal; first parts up to 4 are no harm.
    exponent = tl.minimum(exponent, 0x7E800000)
    scale = exponent.to(tl.float32, bitcast=True)
    inverse = (0x7F000000 - exponent).to(tl.float32, bitcast=True)
    left = left * inverse[:, None]
    first = left.to(tl.float16)
    second = ((left - first.to(tl.float32)) * _SHIFT).to(tl.float16)
    w_first = tl.load(weight + offsets)
    w_second = tl.load(weight + part_size + offsets)
    nothing = tl.zeros_like(total)
    small = _dot(first, w_second, _dot(second, w_first, nothing))
    large = _dot(first, w_first, nothing)
    return total + (large + small * (1.0 / _SHIFT)) * scale[:, None]


@triton.jit
def _dot(left, right, total):
    if INTERPRETED_HERE:  # the interpreter multiplies bfloat16 wrongly
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, total)


INTERPRETED = not isinstance(multiply, triton.JITFunction)
"""Whether TRITON_INTERPRET was set on import, so that the kernels run on the CPU."""

INTERPRETED_HERE = tl.constexpr(INTERPRETED)
