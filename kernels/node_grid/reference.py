"""The product in plain PyTorch: any dtype and device, any derivative."""

from torch import Tensor

from .matrices import GridMatrices

__all__ = ["grid_product"]


def grid_product(left: Tensor, right: Tensor, matrices: GridMatrices) -> Tensor:
    """As :func:`operators.grid_product`; values on the grid, (B, G, C), are stored."""
    values = (matrices.synthesis @ left) * (matrices.synthesis @ right)
    return matrices.analysis @ values
