"""Parameters, constants and linear maps: what every part of the model is built from."""

import torch
from torch import Tensor, nn

from .layout import degree_of_row

__all__ = [
    "ChannelLinear",
    "FocusLinear",
    "FocusSO3Linear",
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
    """``x @ matrix (+ bias)``, matrix (in, out)."""

    def __init__(self, n_in: int, n_out: int, bias: bool = False):
        super().__init__()
        self.matrix = parameter(n_in, n_out)
        self.bias = parameter(n_out) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.matrix
        return y if self.bias is None else y + self.bias


class ChannelLinear(nn.Module):
    """``x @ weight (+ bias)`` on the last axis, the same for every row and frame."""

    def __init__(self, n_in: int, n_out: int, bias: bool = False):
        super().__init__()
        self.weight = parameter(n_in, n_out)
        self.bias = parameter(n_out) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


class FocusLinear(nn.Module):
    """One map per focus stream, (F, B, n_in) -> (F, B, n_out)."""

    def __init__(self, n_focus: int, n_in: int, n_out: int, bias: bool = False):
        super().__init__()
        self.n_focus = n_focus
        self.weight = parameter(n_in, n_focus * n_out)  # column f * n_out + o
        self.bias = parameter(n_focus * n_out) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight.unflatten(1, (self.n_focus, -1)).transpose(0, 1)
        if self.bias is None:
            return y
        return y + self.bias.unflatten(0, (self.n_focus, 1, -1))


class SO3Linear(nn.Module):
    """One map per degree on packed rows, (N, D, n_in) -> (N, D, n_out).

    The bias, if any, belongs to the scalar row.
    """

    def __init__(self, lmax: int, n_in: int, n_out: int, bias: bool = False):
        super().__init__()
        self.lmax = lmax
        self.weight = parameter(lmax + 1, n_in, n_out)
        self.bias = parameter(n_out) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        sizes = [2 * l + 1 for l in range(self.lmax + 1)]
        parts = x.split(sizes, dim=1)
        parts = [p @ w for p, w in zip(parts, self.weight, strict=True)]
        if self.bias is not None:
            parts[0] = parts[0] + self.bias
        return torch.cat(parts, dim=1)


class FocusSO3Linear(nn.Module):
    """One map per degree and focus stream, (N, D, F n_in) -> (N, D, F n_out)."""

    def __init__(
        self, lmax: int, n_focus: int, n_in: int, n_out: int, bias: bool = False
    ):
        super().__init__()
        self.lmax, self.n_focus = lmax, n_focus
        self.weight = parameter(lmax + 1, n_in, n_focus * n_out)  # column f * n_out + o
        self.bias = parameter(n_focus * n_out) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        streams = x.unflatten(-1, (self.n_focus, -1))
        weight = self.weight.unflatten(-1, (self.n_focus, -1))
        y = torch.einsum("ndfi,difo->ndfo", streams, expand_degrees(weight, self.lmax))
        y = y.flatten(2)
        if self.bias is None:
            return y
        return torch.cat([y[:, :1] + self.bias, y[:, 1:]], dim=1)


def expand_degrees(per_degree: Tensor, lmax: int) -> Tensor:
    """Repeat per-degree values on the packed rows, (lmax + 1, ...) -> (D, ...)."""
    each = per_degree.unbind()
    return torch.stack([each[l] for l in degree_of_row(lmax)])
