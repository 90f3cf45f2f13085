"""Residual feed-forward nets, and the sums over neighbours of a scalar embedding net."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from ..dpa4.activation import Activation
from ..dpa4.linear import parameter

__all__ = ["Embedding", "EmbeddingNet", "FittingNet", "ResidualLayer", "ResidualNet"]


class ResidualLayer(nn.Module):
    """``act(x W + b) * idt`` plus the input where the width stays the same or doubles."""

    def __init__(
        self, n_in: int, n_out: int, activation: str, resnet_dt: bool, bias: bool = True
    ):
        super().__init__()
        self.n_copies = n_out // n_in if n_out in (n_in, 2 * n_in) else 0
        self.matrix = parameter(n_in, n_out)
        self.bias = parameter(n_out) if bias else None
        self.idt = parameter(n_out) if resnet_dt and self.n_copies else None
        self.activation = Activation(activation)

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.matrix
        y = self.activation(y if self.bias is None else y + self.bias)
        if self.idt is not None:
            y = y * self.idt
        return y + torch.cat([x] * self.n_copies, dim=-1) if self.n_copies else y


class ResidualNet(nn.Module):
    """Residual layers one after the other, (..., n_in) -> (..., widths[-1])."""

    def __init__(self, n_in: int, widths: tuple[int, ...], activation: str, resnet_dt: bool):
        super().__init__()
        self.layers = nn.ModuleList(
            ResidualLayer(a, b, activation, resnet_dt) for a, b in pairwise((n_in, *widths))
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class FittingNet(ResidualNet):
    """A residual net with a linear output, (N, n_in) -> (N,)."""

    def __init__(self, n_in: int, widths: tuple[int, ...], activation: str, resnet_dt: bool):
        super().__init__(n_in, widths, activation, resnet_dt)
        n_last = widths[-1] if widths else n_in
        self.layers.append(OutputLayer(n_last))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, 0]


class OutputLayer(nn.Module):
    """``x W + b`` with one output."""

    def __init__(self, n_in: int):
        super().__init__()
        self.matrix = parameter(n_in, 1)
        self.bias = parameter(1)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.matrix + self.bias


class Embedding(nn.Module):
    """A function g of one scalar with K outputs, and the sums that descriptors form with it.

    A subclass provides ``forward``: scalars (...) -> (..., K).
    """

    def moments(self, rows: Tensor) -> Tensor:
        """``y_mk = sum_j rows_jm g_k(rows_j0)``, (n, j, M) -> (n, M, K)."""
        return rows.transpose(1, 2) @ self(rows[..., 0])

    def gated_moments(self, rows: Tensor, gate: Tensor) -> Tensor:
        """``moments`` with ``g_k (1 + gate_jk)`` in place of g_k; gate (n, j, K)."""
        return rows.transpose(1, 2) @ (self(rows[..., 0]) * (1 + gate))

    def pair_sum(self, products: Tensor) -> Tensor:
        """``y_k = sum_jl c_jl g_k(c_jl)``, (n, j, l) -> (n, K)."""
        flat = products.flatten(1)
        return (flat[:, None] @ self(flat))[:, 0]


class EmbeddingNet(Embedding):
    """An embedding as a residual net."""

    def __init__(self, widths: tuple[int, ...], activation: str, resnet_dt: bool):
        super().__init__()
        self.layers = ResidualNet(1, widths, activation, resnet_dt).layers

    def forward(self, x: Tensor) -> Tensor:
        x = x[..., None]
        for layer in self.layers:
            x = layer(x)
        return x
