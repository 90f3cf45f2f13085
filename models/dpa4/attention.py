"""Attention over the edges that arrive at an atom, and the choice between focus streams."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..edges import EdgeList
from .config import DescriptorConfig
from .geometry import EdgeGeometry
from .linear import FocusLinear, parameter
from .norm import ScalarNorm

__all__ = ["EdgeAttention", "FocusCompetition"]

# Exponents above this appear only where the envelope is below 1e-30; the bound keeps
# 0 * inf out of the weights.
_MAX_EXPONENT = 80.0


class EdgeAttention(nn.Module):
    """Weights of the edges of each destination, per focus stream and head.

    ``m = w^2 exp(q_dst . k_src / sqrt(C_h) + radial bias)``, normalised by the sum over the
    destination's edges plus ``softplus(z) + eps``, so that weights vanish smoothly with the
    envelope w and an atom may attend to nothing. See ``gate`` for the destination's part.
    """

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        focus, channels = config.n_focus, config.focus_channels
        self.eps, self.n_heads = config.eps, config.n_atten_head
        self.attn_qk_norm = ScalarNorm(focus, channels, config.eps)
        self.attn_q_proj = FocusLinear(focus, channels, channels)
        self.attn_k_proj = FocusLinear(focus, channels, channels)
        self.adamw_attn_logit_w = parameter(channels, focus, self.n_heads)
        self.adamw_attn_z_bias_raw = parameter(focus, self.n_heads)
        self.attn_output_gate_norm = ScalarNorm(focus, channels, config.eps)
        self.adamw_attn_gate_w = parameter(channels, focus, self.n_heads)

    def forward(self, geometry: EdgeGeometry, scalars: Tensor, radial: Tensor) -> Tensor:
        """Attention weights (F, E, heads).

        Args:
            geometry: the edges.
            scalars: scalar row of the nodes, (F, N, C).
            radial: degree-0 radial features at hidden width, (F, E, C).
        """
        logits = self._logits(geometry.edges, scalars, radial)
        null = F.softplus(self.adamw_attn_z_bias_raw) + self.eps  # (F, heads)
        weights = _normalise(logits, geometry, null.flatten())
        return weights.unflatten(1, null.shape).movedim(1, 0)

    def gate(self, scalars: Tensor) -> Tensor:
        """Output gate of each destination, (F, N, C) -> (F, N, heads)."""
        normed = self.attn_output_gate_norm(scalars)
        return (normed @ self.adamw_attn_gate_w.transpose(0, 1)).sigmoid()

    def _logits(self, edges: EdgeList, scalars: Tensor, radial: Tensor) -> Tensor:
        normed = self.attn_qk_norm(scalars)
        query = self._by_node(self.attn_q_proj(normed))
        key = self._by_node(self.attn_k_proj(normed))
        dot = (edges.at_dst(query) * edges.at_src(key)).sum(-1) / query.shape[-1] ** 0.5
        bias = radial @ self.adamw_attn_logit_w.transpose(0, 1)  # (F, E, heads)
        return (dot + bias.movedim(0, 1)).flatten(1)

    def _by_node(self, x: Tensor) -> Tensor:
        """(F, N, C) -> (N, F, heads, C_h)."""
        return x.movedim(0, 1).unflatten(-1, (self.n_heads, -1))


def _normalise(logits: Tensor, geometry: EdgeGeometry, null: Tensor) -> Tensor:
    """``w^2 e^logit / (null + sum)`` over each destination, (E, K) -> (E, K).

    The exponent is shifted by the destination's largest ``logit + 2 log w``. Squaring
    ``w e^(half)`` instead of multiplying by ``w^2`` or ``e^(2 log w)`` keeps every order of
    derivative finite where w is tiny or zero.
    """
    edges, w = geometry.edges, geometry.envelope[:, None]
    shift = _largest(logits.detach(), w.detach(), edges, null.detach())
    half = (logits - shift.index_select(0, edges.dst)) / 2
    mass = (w * half.clamp(max=_MAX_EXPONENT).exp()).square()
    total = edges.sum_at_dst(mass) + null * torch.exp(-shift)
    return mass / edges.at_dst(total)


def _largest(logits: Tensor, w: Tensor, edges: EdgeList, null: Tensor) -> Tensor:
    """Largest log mass of each destination, the null mass included, (N, K)."""
    log_mass = torch.where(w > 0, logits + 2 * torch.log(w), -torch.inf)
    start = null.log().expand(edges.n_atoms, -1)
    index = edges.dst[:, None].expand_as(log_mass)
    return start.scatter_reduce(0, index, log_mass, "amax", include_self=True)


class FocusCompetition(nn.Module):
    """Softmax over the focus streams of one edge, from their scalars before mixing."""

    _FLOOR = 0.02  # share that is spread evenly, so that no stream is ever shut

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        focus, channels = config.n_focus, config.focus_channels
        self.adamw_focus_compete_w = parameter(channels, focus)
        self.focus_compete_norm = (
            ScalarNorm(focus, channels, config.eps) if config.edge_norm else nn.Identity()
        )

    def forward(self, scalars: Tensor) -> Tensor:
        """Scalar rows (F, E, C) -> weights (F, E)."""
        normed = self.focus_compete_norm(scalars)
        logits = (normed * self.adamw_focus_compete_w.T[:, None]).sum(-1)
        share = logits.softmax(dim=0)
        return (1 - self._FLOOR) * share + self._FLOOR / len(share)
