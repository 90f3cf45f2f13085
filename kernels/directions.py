"""Directions and lengths of edges, for kernels that start from edge vectors."""

import triton
import triton.language as tl

__all__ = ["direction"]


@triton.jit
def direction(vec, edge, n_edges, eps_squared):
    """x, y and z of the directions and the lengths, (BLOCK, 1) each.

    A length is ``sqrt(r^2 + eps^2)``; ``vec`` is (E, 3), float32 or float64.
    """
    real = (edge < n_edges)[:, None]
    at = vec + edge[:, None] * 3
    x = tl.load(at, mask=real, other=0.0).to(tl.float32)
    y = tl.load(at + 1, mask=real, other=0.0).to(tl.float32)
    z = tl.load(at + 2, mask=real, other=1.0).to(tl.float32)
    length = tl.sqrt(x * x + y * y + z * z + eps_squared)
    return x / length, y / length, z / length, length
