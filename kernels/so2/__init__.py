"""The SO(2) path of an interaction block on fused Triton kernels, float32."""

from .layout import KernelOptions, Layout
from .operators import mix, rotate_in, tile_sum
from .weights import StackWeights, stack_weights

__all__ = [
    "KernelOptions",
    "Layout",
    "StackWeights",
    "mix",
    "rotate_in",
    "stack_weights",
    "tile_sum",
]
