"""Product of two fields on a grid, without the grid in memory; Triton, float32."""

from .launch import MOST_COEFFICIENTS
from .matrices import GridMatrices, grid_matrices
from .operators import grid_product

__all__ = ["MOST_COEFFICIENTS", "GridMatrices", "grid_matrices", "grid_product"]
