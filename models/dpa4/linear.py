"""Parameters, constants and the linear maps that every part of the model is built from."""

import torch
from torch import Tensor, nn

from .layout import degree_of_row

__all__ = [
    "ChannelLinear",
    "FocusLinear",
    "MLPLayer",
    "SO3Linear",
    "constant",
    "parameter",
]


def parameter(*shape: int) -> nn.Parameter:
    """A frozen parameter without storage: the checkpoint's tensor takes its place."""
    return nn.Parameter(torch.empty(shape, device="meta"), requires_grad=False)


def constant(values) -> nn.Buffer:
    """A float64 constant that moves and casts with its module but is never stored."""
    return nn.Buffer(torch.as_tensor(values, dtype=torch.float64), persistent=False)


class MLPLayer(nn.Module):
    """``x @ matrix``, matrix (in, out), without bias."""

    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        self.matrix = parameter(n_in, n_out)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.matrix


class ChannelLinear(nn.Module):
    """``x @ weight`` on the last axis, the same for every row and frame."""

    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        self.weight = parameter(n_in, n_out)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class FocusLinear(nn.Module):
    """One map per focus stream, (F, B, n_in) -> (F, B, n_out)."""

    def __init__(self, n_focus: int, n_in: int, n_out: int):
        super().__init__()
        self.n_focus = n_focus
        self.weight = parameter(n_in, n_focus * n_out)  # column f * n_out + o

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.unflatten(1, (self.n_focus, -1)).transpose(0, 1)


class SO3Linear(nn.Module):
    """One map per degree, (N, D, n_in) -> (N, D, n_out) on packed rows."""

    def __init__(self, lmax: int, n_in: int, n_out: int):
        super().__init__()
        self.lmax = lmax
        self.weight = parameter(lmax + 1, n_in, n_out)

    def forward(self, x: Tensor) -> Tensor:
        sizes = [2 * l + 1 for l in range(self.lmax + 1)]
        parts = x.split(sizes, dim=1)
        return torch.cat([p @ w for p, w in zip(parts, self.weight, strict=True)], dim=1)


def expand_degrees(per_degree: Tensor, lmax: int) -> Tensor:
    """Repeat per-degree values on the packed rows, (lmax + 1, ...) -> (D, ...)."""
    index = torch.as_tensor(degree_of_row(lmax), device=per_degree.device)
    return per_degree.index_select(0, index)
