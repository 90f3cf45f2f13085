"""Linear maps per degree on the kernel of ``kernels/degree_linear``."""

from torch import Tensor, nn

from ...kernels.degree_linear import degree_linear
from ...kernels.products import split
from .grid_net import RowLinear
from .layout import degree_of_row
from .linear import SO3Linear

__all__ = ["FusedDegreeLinear", "fuse_linears"]


def fuse_linears(model: nn.Module, precision: str) -> None:
    """Put the kernel in the place of every map per degree that it can run."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if _is_fusible(child):
                setattr(module, name, FusedDegreeLinear(child, precision))


def _is_fusible(module: nn.Module) -> bool:
    if isinstance(module, RowLinear):
        whole = module.degrees == degree_of_row(max(module.degrees)).tolist()
    else:
        whole = isinstance(module, SO3Linear)
    if not whole or len(module.weight) == 1:  # one degree is one product
        return False
    return all(size % 16 == 0 for size in module.weight.shape[1:])


class FusedDegreeLinear(nn.Module):
    """Drop-in of ``SO3Linear`` and of ``RowLinear``, (N, D, n_in) -> (N, D, n_out)."""

    def __init__(self, linear: SO3Linear | RowLinear, precision: str):
        super().__init__()
        self.precision = precision
        self.bias = getattr(linear, "bias", None)
        weight = linear.weight.detach()
        self.register_buffer("weight", split(weight, precision), persistent=False)
        transposed = split(weight.mT.contiguous(), precision)
        self.register_buffer("weight_t", transposed, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        y = degree_linear(x, self.weight, self.weight_t, self.precision)
        if self.bias is None:
            return y
        # The bias belongs to the scalar row.
        return y.slice_scatter((y[:, 0] + self.bias)[:, None], 1, 0, 1)
