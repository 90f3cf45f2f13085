"""Attention over the edges of an atom, and the choice between focus streams."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import DescriptorConfig
from .linear import FocusLinear, FocusSO3Linear, SO3Linear, parameter
from .norm import ScalarNorm
from .view import DPA4EdgeView

__all__ = ["AttentionMaps", "EdgeAttention", "FocusCompetition", "safe_sqrt"]

# Exponents above this appear only where the envelope is below 1e-30; the bound keeps
# 0 * inf out of the weights.
_MAX_EXPONENT = 80.0


class EdgeAttention(nn.Module):
    """Weights of the edges of each destination, per stream and head.

    ``m = w^2 g exp(q_dst . k_src / sqrt(C_h) + radial bias)``, normalised by the sum over
    the destination's edges plus ``softplus(z) + eps``: weights vanish smoothly with the
    envelope w (and the source gate g of bridged models), and an atom may attend to
    nothing. With ``atten_f_mix`` all focus streams form one.
    """

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.streams = 1 if config.atten_f_mix else config.n_focus
        channels = config.hidden_channels // self.streams
        self.eps, self.n_heads = config.eps, config.n_atten_head
        self.attn_qk_norm = ScalarNorm(self.streams, channels, config.eps)
        self.attn_q_proj = FocusLinear(self.streams, channels, channels)
        self.attn_k_proj = FocusLinear(self.streams, channels, channels)
        self.adamw_attn_logit_w = parameter(channels, self.streams, self.n_heads)
        self.adamw_attn_z_bias_raw = parameter(self.streams, self.n_heads)
        self.attn_output_gate_norm = ScalarNorm(self.streams, channels, config.eps)
        self.adamw_attn_gate_w = parameter(channels, self.streams, self.n_heads)

    def project(self, scalars: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys of the atoms from their scalar row (N, H), (N, H) each."""
        normed = self.attn_qk_norm(self._by_stream(scalars))
        projected = (self.attn_q_proj(normed), self.attn_k_proj(normed))
        query, key = (x.movedim(0, 1).flatten(1) for x in projected)
        return query, key

    def forward(
        self, view: DPA4EdgeView, radial: Tensor, query: Tensor, key: Tensor
    ) -> Tensor:
        """Attention weights of each channel, (E, H).

        Args:
            view: the edges.
            radial: degree-0 radial features at hidden width, (E, H).
            query: of the destination of each edge, (E, H).
            key: of its source, (E, H).
        """
        bias = self._by_stream(radial) @ self.adamw_attn_logit_w.transpose(0, 1)
        product = (query * key).unflatten(1, (self.streams * self.n_heads, -1))
        dot = product.sum(-1) / product.shape[-1] ** 0.5
        logits = dot + bias.movedim(0, 1).flatten(1)  # (E, streams * heads)
        return self._to_channels(_normalise(logits, view, self.null), radial)

    @property
    def null(self) -> Tensor:
        """Mass of attending to nothing, (streams * heads,)."""
        return (F.softplus(self.adamw_attn_z_bias_raw) + self.eps).flatten()

    def gate(self, scalars: Tensor) -> Tensor:
        """Output gate of each destination and channel, (N, H) -> (N, H)."""
        normed = self.attn_output_gate_norm(self._by_stream(scalars))
        gate = (normed @ self.adamw_attn_gate_w.transpose(0, 1)).sigmoid()
        return self._to_channels(gate.movedim(0, 1).flatten(1), scalars)

    def _by_stream(self, x: Tensor) -> Tensor:
        """(B, H) -> (streams, B, C)."""
        return x.unflatten(-1, (self.streams, -1)).movedim(1, 0)

    def _to_channels(self, per_head: Tensor, like: Tensor) -> Tensor:
        """Repeat on the channels of each head, (B, streams * heads) -> (B, H)."""
        return per_head.repeat_interleave(like.shape[1] // per_head.shape[1], dim=1)


def _normalise(logits: Tensor, view: DPA4EdgeView, null: Tensor) -> Tensor:
    """``w^2 g e^logit / (null + sum)`` over each destination, (E, K) -> (E, K).

    The exponent is shifted by the destination's largest log mass. Squaring
    ``w e^(half)`` instead of multiplying by ``w^2`` or ``e^(2 log w)`` keeps every order
    of derivative finite where w is tiny or zero.
    """
    layout, w = view.layout, view.envelope[:, None]
    if view.source_gate is not None:
        w = w * safe_sqrt(view.source_gate)[:, None]
    log_mass = torch.where(w > 0, logits + 2 * torch.log(w), -torch.inf)
    shift = layout.largest_at_dst(log_mass, null.log())
    half = (logits - layout.at_dst(shift)) / 2
    mass = (w * half.clamp(max=_MAX_EXPONENT).exp()).square()
    total = layout.sum_at_dst(mass) + null * torch.exp(-shift)
    return mass / layout.at_dst(total)


def safe_sqrt(x: Tensor) -> Tensor:
    """Root with derivative zero at zero."""
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1).sqrt(), 0)


class AttentionMaps(nn.Module):
    """Linear maps of messages and of their weighted sum, all optional."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        lmax, hidden = config.lmax, config.hidden_channels
        streams = 1 if config.atten_f_mix else config.n_focus
        sizes = (lmax, streams, hidden // streams, hidden // streams)
        self.attn_focus_mix = (
            SO3Linear(lmax, hidden, hidden) if config.atten_f_mix else nn.Identity()
        )
        self.attn_v_proj = (
            FocusSO3Linear(*sizes) if config.atten_v_proj else nn.Identity()
        )
        self.attn_o_proj = (
            FocusSO3Linear(*sizes) if config.atten_o_proj else nn.Identity()
        )

    def value(self, message: Tensor) -> Tensor:
        """Messages before they are weighted, (E, D, H) -> (E, D, H)."""
        return self.attn_v_proj(self.attn_focus_mix(message))

    def output(self, total: Tensor) -> Tensor:
        """Weighted and gated sums, (N, D, H) -> (N, D, H)."""
        return self.attn_o_proj(total)


class FocusCompetition(nn.Module):
    """Softmax over the focus streams of one edge, from their scalars before mixing."""

    _FLOOR = 0.02  # share that is spread evenly, so that no stream is ever shut

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        focus, channels = config.n_focus, config.focus_channels
        self.adamw_focus_compete_w = parameter(channels, focus)
        self.focus_compete_bias = parameter(focus) if config.mlp_bias else None
        self.focus_compete_norm = (
            ScalarNorm(focus, channels, config.eps) if config.edge_norm else nn.Identity()
        )

    def forward(self, scalars: Tensor) -> Tensor:
        """Scalar rows (F, E, C) -> weights (F, E)."""
        normed = self.focus_compete_norm(scalars)
        logits = (normed * self.adamw_focus_compete_w.T[:, None]).sum(-1)
        if self.focus_compete_bias is not None:
            logits = logits + self.focus_compete_bias[:, None]
        share = logits.softmax(dim=0)
        return (1 - self._FLOOR) * share + self._FLOOR / len(share)
