"""Vectors of the types, and what they do to the embedding of a pair."""

import torch
from torch import Tensor, nn

from .config import DescriptorConfig
from .networks import ResidualLayer, residual_layers

__all__ = ["TypeEmbedding", "TypeGate"]


class TypeEmbedding(nn.Module):
    """One learnt vector per type: a linear residual layer on one-hot rows."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        bias = config.tebd_bias
        self.layer = ResidualLayer(config.ntypes, config.tebd_dim, "linear", False, bias)

    def forward(self) -> Tensor:
        """All vectors, (T, tebd_dim)."""
        matrix = self.layer.matrix
        return self.layer(
            torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        )


class TypeGate(nn.Module):
    """Gate of a pair by its types: a net on the vectors of one type or of both."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.one_sided = config.type_one_side
        n_in = config.tebd_dim if self.one_sided else 2 * config.tebd_dim
        self.layers = residual_layers(n_in, config)

    def forward(self, vectors: Tensor) -> Tensor:
        """Gates by first and second type, (T, tebd_dim) -> (T, T or 1, K)."""
        first = vectors[:, None]
        if self.one_sided:
            return self.layers(first)
        pair = torch.broadcast_tensors(first, vectors[None])
        return self.layers(torch.cat(pair, dim=-1))
