"""The SO(2) convolution: messages from neighbours, mixed in the frame of each edge."""

import numpy as np
import torch
from torch import Tensor, nn

from .attention import EdgeAttention, FocusCompetition
from .config import DescriptorConfig
from .geometry import EdgeGeometry
from .grid_net import MessageNodeProduct
from .layout import degree_of_row
from .linear import ChannelLinear, SO3Linear, constant
from .so2 import MixingStack, RadialMixer

__all__ = ["SO2Convolution"]


class SO2Convolution(nn.Module):
    """Gather, rotate, mix, rotate back and sum: (N, D, C) -> (N, D, C)."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.n_focus, self.n_heads = config.n_focus, config.n_atten_head
        lmax, hidden = config.lmax, config.hidden_channels
        self.pre_focus_mix = SO3Linear(lmax, config.channels, hidden)
        self.post_focus_mix = SO3Linear(lmax, hidden, config.channels)
        self.radial_hidden_proj = (
            ChannelLinear(config.channels, hidden)
            if hidden != config.channels
            else nn.Identity()
        )
        self.radial_degree_mixer = (
            RadialMixer(config) if config.radial_so2_mode != "none" else None
        )
        self.stack = MixingStack(config)
        self.competition = FocusCompetition(config) if config.n_focus > 1 else None
        self.attention = EdgeAttention(config) if config.n_atten_head else None
        self.message_node_grid_product = (
            MessageNodeProduct(config) if config.message_node_so3 else None
        )
        # Orders above mmax are lost in the edge frame; this keeps the norm per degree.
        l, mmax = degree_of_row(lmax), config.block_mmax
        self.back_scale = constant(
            np.sqrt(np.where(l > mmax, (2 * l + 1) / (2 * mmax + 1), 1))
        )

    def forward(
        self, x: Tensor, geometry: EdgeGeometry, rotation: list[Tensor], radial: Tensor
    ) -> Tensor:
        """Convolve.

        Args:
            x: node state, (N, D, C).
            geometry: the edges.
            rotation: per order (E, n or 2 n, D), from ``EdgeRotation``.
            radial: radial features with type terms, (E, L + 1, C).
        """
        edges = geometry.edges
        nodes = self.pre_focus_mix(x)
        radial = self.radial_hidden_proj(radial)
        orders = self._into_frame(edges.at_src, nodes, rotation, radial)
        before = orders[0][:, :, 0]
        orders = self.stack(orders)
        weight = self._weight(geometry, nodes, before, radial)
        message = _out_of_frame([x * weight[:, :, None] for x in orders], rotation)
        total = edges.sum_at_dst(message) * self.back_scale[:, None]
        total = total * self._at_destination(geometry, nodes)[:, None, :]
        if self.message_node_grid_product is not None:
            total = total + self.message_node_grid_product(total, nodes)
        return self.post_focus_mix(total)

    def _into_frame(self, at_src, nodes, rotation, radial) -> list[Tensor]:
        """Rotated and radially weighted source features, (F, E, n, C) per order."""
        mixer, mixed = self.radial_degree_mixer, rotation
        if mixer is not None:
            nodes, mixed = mixer.scale_channels(nodes), mixer(rotation, radial)
        local = torch.cat(mixed, dim=1) @ at_src(nodes)
        orders = local.split([rows.shape[1] for rows in rotation], dim=1)
        if mixer is None:
            orders = [_times_radial(x, radial[:, m:]) for m, x in enumerate(orders)]
        return [self._by_focus(x) for x in orders]

    def _weight(self, geometry, nodes, before, radial) -> Tensor:
        """Weight of each edge's message, (F, E, C) or broadcastable to it."""
        if self.attention is None:
            weight = geometry.envelope[None, :, None]
        else:
            per_head = self.attention(
                geometry, self._by_focus(nodes[:, 0]), self._by_focus(radial[:, 0])
            )
            weight = self._to_channels(per_head)
        if self.competition is not None:
            weight = weight * self.competition(before)[..., None]
        return weight

    def _at_destination(self, geometry, nodes) -> Tensor:
        """Factor of the summed message at its destination, (N, H) or (N, 1)."""
        if self.attention is None:
            return geometry.inv_sqrt_degree[:, None]
        gate = self.attention.gate(self._by_focus(nodes[:, 0]))
        return self._to_channels(gate).movedim(0, 1).flatten(1)

    def _by_focus(self, x: Tensor) -> Tensor:
        """(..., F C) -> (F, ..., C), contiguous."""
        return x.unflatten(-1, (self.n_focus, -1)).movedim(-2, 0).contiguous()

    def _to_channels(self, per_head: Tensor) -> Tensor:
        """(F, B, heads) -> (F, B, C)."""
        width = self.post_focus_mix.weight.shape[1] // (self.n_focus * self.n_heads)
        return per_head.repeat_interleave(width, dim=-1)


def _out_of_frame(orders: list[Tensor], rotation: list[Tensor]) -> Tensor:
    """Rotate local features back and join the focus streams, -> (E, D, F C)."""
    local = torch.cat(orders, dim=2).movedim(0, 2).flatten(2)  # (E, rows, F C)
    return torch.cat(rotation, dim=1).mT @ local


def _times_radial(x: Tensor, radial: Tensor) -> Tensor:
    """Rows of one order (E, n or 2 n, H) times the radial features (E, n, H) of degrees."""
    signs = x.unflatten(1, (-1, radial.shape[1]))
    return (signs * radial[:, None]).flatten(1, 2)
