"""Linear maps on the kernel of ``kernels/degree_linear``."""

import torch
from torch import Tensor, nn

from ...kernels.degree_linear import degree_linear
from ...kernels.products import split
from .grid_net import RowLinear
from .layout import degree_of_row
from .linear import ChannelLinear, MLPLayer, SO3Linear

__all__ = ["FusedDegreeLinear", "FusedLinear", "fuse_linears"]


def fuse_linears(model: nn.Module, precision: str) -> None:
    """Put the kernel in the place of every linear map that it can run."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            fused = _fused(child, precision)
            if fused is not None:
                setattr(module, name, fused)


def _fused(module: nn.Module, precision: str) -> nn.Module | None:
    if type(module) is ChannelLinear and _fits(module.weight):
        return FusedLinear(module.weight, module.bias, precision)
    if type(module) is MLPLayer and _fits(module.matrix):
        fused = FusedLinear(module.matrix, module.bias, precision)
        fused.matrix = module.matrix  # EnvironmentSeed applies one in parts
        return fused
    if isinstance(module, RowLinear):
        whole = module.degrees == degree_of_row(max(module.degrees)).tolist()
    else:
        whole = isinstance(module, SO3Linear)
    return (
        FusedDegreeLinear(module, precision) if whole and _fits(module.weight) else None
    )


def _fits(weight: Tensor) -> bool:
    whole = all(size % 16 == 0 for size in weight.shape[-2:])
    return whole and weight.dtype == torch.float32


class FusedLinear(nn.Module):
    """``x @ weight (+ bias)`` on the last axis: drop-in of ``ChannelLinear``.

    Args:
        weight: (n_in, n_out), both multiples of 16.
        bias: (n_out,) or None.
        precision: of the products.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, precision: str):
        super().__init__()
        self.precision, self.bias = precision, bias
        weight = weight.detach()
        self.register_buffer("weight", split(weight[None], precision), persistent=False)
        transposed = split(weight.T[None].contiguous(), precision)
        self.register_buffer("weight_t", transposed, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., n_in) -> (..., n_out)."""
        rows = x.reshape(-1, 1, x.shape[-1])
        y = degree_linear(rows, self.weight, self.weight_t, self.precision)
        y = y.reshape(*x.shape[:-1], y.shape[-1])
        return y if self.bias is None else y + self.bias


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
