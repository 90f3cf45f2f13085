"""The SO(2) convolution: messages from neighbours, weighted, summed, and mixed."""

from torch import Tensor, nn

from .attention import AttentionMaps, EdgeAttention, FocusCompetition
from .cartesian import EdgeCartesianPath, NodeCartesian
from .config import DescriptorConfig
from .geometry import EdgeGeometry
from .grid_net import CrossProduct, GridLayout
from .linear import ChannelLinear, SO3Linear
from .messages import DirectPath, FramePath, by_focus

__all__ = ["SO2Convolution"]


class SO2Convolution(nn.Module):
    """Gather, form messages, weight and sum them: (N, D, C) -> (N, D, C)."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.n_focus = config.n_focus
        lmax, channels, hidden = config.lmax, config.channels, config.hidden_channels
        self.pre_focus_mix = SO3Linear(lmax, channels, hidden, config.mlp_bias)
        self.post_focus_mix = SO3Linear(lmax, hidden, channels, config.mlp_bias)
        self.radial_hidden_proj = (
            ChannelLinear(channels, hidden) if hidden != channels else nn.Identity()
        )
        self.path = _path(config)
        self.competition = FocusCompetition(config) if config.n_focus > 1 else None
        self.attention = EdgeAttention(config) if config.n_atten_head else None
        self.attention_maps = _attention_maps(config)
        self.message_node = _message_node(config)
        cartesian = config.node_cartesian is not None and lmax in (1, 2)
        self.node_cartesian = NodeCartesian(config) if cartesian else None

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
        nodes = self.pre_focus_mix(x)
        radial = self.radial_hidden_proj(radial)
        rows, scalars = self.path(nodes, geometry, rotation, radial)
        weight = self._weight(geometry, nodes[:, 0], radial[:, 0])
        share = None if self.competition is None else self.competition(scalars)
        if self.attention_maps is None:
            weight = by_focus(weight, self.n_focus)
            weight = weight if share is None else weight * share[..., None]
            message = self.path.back([x * weight[:, :, None] for x in rows], rotation)
        else:
            if share is not None:
                rows = [x * share[:, :, None, None] for x in rows]
            message = self.attention_maps.value(self.path.back(rows, rotation))
            message = message * weight[:, None]
        total = geometry.edges.sum_at_dst(message) * self.path.back_scale
        total = total * self._at_destination(geometry, nodes[:, 0])[:, None]
        return self.post_focus_mix(self._with_node(total, nodes))

    def _weight(self, geometry: EdgeGeometry, scalars: Tensor, radial: Tensor) -> Tensor:
        """Weight of each edge's message, (E, H)."""
        if self.attention is not None:
            return self.attention(geometry, scalars, radial)
        weight = geometry.envelope
        if geometry.source_gate is not None:
            weight = weight * geometry.source_gate
        return weight[:, None].expand_as(radial)

    def _at_destination(self, geometry: EdgeGeometry, scalars: Tensor) -> Tensor:
        """Factor of the summed message at its destination, (N, H) or (N, 1)."""
        if self.attention is not None:
            return self.attention.gate(scalars)
        return geometry.inv_sqrt_degree[:, None]

    def _with_node(self, total: Tensor, nodes: Tensor) -> Tensor:
        """Products of the summed message with the node itself, (N, D, H)."""
        if self.attention_maps is not None:
            total = self.attention_maps.output(total)
        if self.message_node is not None:
            query, context = (by_focus(x, self.n_focus) for x in (total, nodes))
            update = self.message_node(query, context)
            total = total + update.movedim(0, 2).flatten(2)
        if self.node_cartesian is not None:
            total = self.node_cartesian(total, nodes)
        return total


def _path(config: DescriptorConfig) -> nn.Module:
    if config.uses_cartesian:
        return EdgeCartesianPath(config)
    return FramePath(config) if config.uses_frames else DirectPath(config)


def _attention_maps(config: DescriptorConfig) -> AttentionMaps | None:
    mapped = config.atten_f_mix or config.atten_v_proj or config.atten_o_proj
    return AttentionMaps(config) if mapped and config.n_atten_head else None


def _message_node(config: DescriptorConfig) -> CrossProduct | None:
    if config.message_node is None:
        return None
    layout = GridLayout(config.message_node, config.lmax, config.frame_kmax)
    return CrossProduct(layout, config.n_focus, config.focus_channels, config.mlp_bias)
