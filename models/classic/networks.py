"""Residual feed-forward nets, and the sums over neighbours of a scalar embedding net."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from ..dpa4.activation import Activation
from ..dpa4.linear import parameter
from .config import DescriptorConfig, FittingConfig

__all__ = [
    "Embedding",
    "EmbeddingNet",
    "FittingNet",
    "JointEmbeddingNet",
    "ResidualLayer",
    "residual_layers",
]


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


def residual_layers(n_in: int, config: DescriptorConfig | FittingConfig) -> nn.Sequential:
    """The hidden layers of a net with the widths and the activation of ``config``."""
    widths = pairwise((n_in, *config.neuron))
    return nn.Sequential(
        *(ResidualLayer(a, b, config.activation, config.resnet_dt) for a, b in widths)
    )


class FittingNet(nn.Module):
    """Residual layers and a linear output, (N, n_in) -> (N,)."""

    def __init__(self, n_in: int, config: FittingConfig):
        super().__init__()
        self.layers = residual_layers(n_in, config)
        self.layers.append(OutputLayer((n_in, *config.neuron)[-1]))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)[:, 0]


class OutputLayer(nn.Module):
    """``x W + b`` with one output."""

    def __init__(self, n_in: int):
        super().__init__()
        self.matrix = parameter(n_in, 1)
        self.bias = parameter(1)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.matrix + self.bias


class Embedding(nn.Module):
    """A function g of one scalar with K outputs, and the sums formed with it.

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

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.layers = residual_layers(1, config)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x[..., None])


class JointEmbeddingNet(nn.Module):
    """A residual net on a scalar and ``n_vectors`` type vectors."""

    def __init__(self, config: DescriptorConfig, n_vectors: int):
        super().__init__()
        self.layers = residual_layers(1 + n_vectors * config.tebd_dim, config)

    def forward(self, x: Tensor, *vectors: Tensor) -> Tensor:
        """Scalars (...) and vectors (..., tebd_dim) -> (..., K)."""
        return self.layers(torch.cat([x[..., None], *vectors], dim=-1))
