"""The SO(2) path of an interaction block on fused Triton kernels, float32."""

from .check import largest_error
from .layout import KernelOptions, Layout
from .operators import mix, rotate_in, tile_sum
from .weights import StackWeights, stack_weights

__all__ = [
    "KernelOptions",
    "Layout",
    "StackWeights",
    "largest_error",
    "mix",
    "rotate_in",
    "stack_weights",
    "tile_sum",
]
