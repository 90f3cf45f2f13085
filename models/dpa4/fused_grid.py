"""Products on a grid on the kernel of ``kernels/node_grid``."""

from torch import Tensor, nn

from ...kernels.node_grid import (
    MOST_COEFFICIENTS,
    GridMatrices,
    grid_matrices,
    grid_product,
)
from .grid_net import GridProduct

__all__ = ["FusedGridProduct", "fuse_grids"]


def fuse_grids(model: nn.Module, precision: str) -> None:
    """Put the kernel in the place of every product on a grid that it can run."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if (
                isinstance(child, GridProduct)
                and len(child.analysis) <= MOST_COEFFICIENTS
            ):
                setattr(module, name, FusedGridProduct(child, precision))


class FusedGridProduct(GridProduct):
    """Drop-in of ``GridProduct``; values on the grid are never stored."""

    def __init__(self, product: GridProduct, precision: str):
        nn.Module.__init__(self)
        self.synthesis, self.analysis = product.synthesis, product.analysis
        self.n_frames, self.grid_op = product.n_frames, product.grid_op
        self.precision = precision
        tables = grid_matrices(self.synthesis, self.analysis, precision)
        self.register_buffer("to_grid", tables.to_grid, persistent=False)
        self.register_buffer("from_grid", tables.from_grid, persistent=False)

    def combine(self, left: Tensor, right: Tensor) -> Tensor:
        """See ``GridProduct.combine``."""
        matrices = GridMatrices(
            self.precision, self.synthesis, self.analysis, self.to_grid, self.from_grid
        )
        result = grid_product(left.flatten(1, 2), right.flatten(1, 2), matrices)
        return result.unflatten(1, (-1, self.n_frames))
