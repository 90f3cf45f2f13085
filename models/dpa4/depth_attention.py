"""Attention over the history of a state, in place of residual connections."""

import torch
from torch import Tensor, nn

from .linear import ChannelLinear, parameter
from .norm import ScalarNorm

__all__ = ["DepthAttention"]


class DepthAttention(nn.Module):
    """Weighted mean of earlier states, the weights from their scalar parts.

    ``softmax_s(query . norm(scalar_s))`` without a factor 1 / sqrt(C); the query is a
    learnt vector (``independent``) or a map of the current scalars (``dependent``).
    """

    def __init__(self, query: str, channels: int, eps: float, bias: bool):
        super().__init__()
        self.key_norm = ScalarNorm(1, channels, eps)
        self.query_proj = self.adamw_pseudo_query = None
        if query == "dependent":
            self.query_proj = ChannelLinear(channels, channels, bias)
        else:
            self.adamw_pseudo_query = parameter(channels)

    def forward(self, scalars: list[Tensor], current: Tensor) -> Tensor:
        """Scalars of the sources, (B, C) each, and of the current state -> (S, B)."""
        if self.query_proj is None:
            query = self.adamw_pseudo_query
        else:
            query = self.query_proj(current)
        keys = self.key_norm(torch.stack(scalars).flatten(0, 1)[None])[0]
        keys = keys.unflatten(0, (len(scalars), -1))
        return (query * keys).sum(-1).softmax(dim=0)

    def mean(self, sources: list[Tensor], current: Tensor) -> Tensor:
        """Weighted mean of packed states (B, R, C); a single source stays as it is."""
        if len(sources) == 1:
            return sources[0]
        weights = self([x[:, 0] for x in sources], current[:, 0])
        return sum(w[:, None, None] * x for w, x in zip(weights, sources, strict=True))
