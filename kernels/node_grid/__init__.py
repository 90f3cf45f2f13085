"""Product of two fields on a grid, without the grid in memory; Triton, float32."""

from .matrices import GridMatrices, grid_matrices
from .operators import grid_product

__all__ = ["GridMatrices", "grid_matrices", "grid_product"]
