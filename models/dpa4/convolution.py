"""The SO(2) convolution: messages from neighbours, weighted, summed, and mixed."""

from collections.abc import Sequence

from torch import Tensor, nn

from .attention import AttentionMaps, EdgeAttention, FocusCompetition
from .cartesian import EdgeCartesianPath, NodeCartesian
from .config import DescriptorConfig
from .grid_net import CrossProduct, GridLayout
from .linear import ChannelLinear, SO3Linear
from .messages import DirectPath, FramePath, by_focus
from .view import DPA4EdgeView

__all__ = ["SO2Convolution"]


class SO2Convolution(nn.Module):
    """Form messages, weight and sum them: node state (N, D, C) -> (N, D, C).

    In three parts: ``prepare`` and ``finish`` act on atoms, ``edge_sum`` on edges.
    """

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.n_focus, self.degrees = config.n_focus, (config.lmax, config.mmax)
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
        self.fused: nn.Module | None = None

    @property
    def on_edges(self):
        """What has ``at_edges`` and ``edge_sum``: itself or what ``fused.fuse`` made."""
        return self if self.fused is None else self.fused

    def prepare(self, x: Tensor) -> tuple[Tensor, ...]:
        """Node features (N, D, H), then query and key (N, H) where there is attention."""
        nodes = self.pre_focus_mix(x)
        if self.attention is None:
            return (nodes,)
        return nodes, *self.attention.project(nodes[:, 0])

    def at_edges(
        self, scalars: Tensor, nodes: Tensor, *query_key: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """What edges read of their source and of their destination.

        Args:
            scalars: scalar embedding of the atoms, (N, C).
            nodes: features from ``prepare``, (N, D, H).
            *query_key: likewise, (N, H) each.
        """
        src, dst = [scalars, nodes], [scalars]
        if query_key:
            dst.append(query_key[0])
            src.append(query_key[1])
        if self.path.reads_destination:
            dst.append(nodes)
        return src, dst

    def edge_sum(
        self, view: DPA4EdgeView, src: Sequence[Tensor], dst: Sequence[Tensor]
    ) -> tuple[Tensor]:
        """Weighted sum of the messages at each destination, (N, D, H).

        Args:
            view: the edges.
            src: rows of the source of each edge, see ``at_edges``.
            dst: rows of the destinations.
        """
        lmax = self.degrees[0]
        dst = [view.layout.at_dst(x) for x in dst]
        pair = (src[0] + dst[0])[:, None]
        radial = self.radial_hidden_proj(view.radial[:, : lmax + 1] + pair)
        rotation = (
            view.rotation(*self.degrees) if isinstance(self.path, FramePath) else []
        )
        rows, scalars = self.path(view, rotation, radial, src[1], dst[-1])
        weight = self._weight(view, radial[:, 0], src, dst)
        share = None if self.competition is None else self.competition(scalars)
        if self.attention_maps is None:
            weight = by_focus(weight, self.n_focus)
            weight = weight if share is None else weight * share[..., None]
            rows = [x * weight[:, :, None] for x in rows]
            return (self.path.sum_back(view.layout, rows, rotation),)
        if share is not None:
            rows = [x * share[:, :, None, None] for x in rows]
        message = self.attention_maps.value(self.path.back(rows, rotation))
        return (view.layout.sum_at_dst(message * weight[:, None]),)

    def _weight(self, view: DPA4EdgeView, radial: Tensor, src, dst) -> Tensor:
        """Weight of each edge's message, (E, H)."""
        if self.attention is not None:
            return self.attention(view, radial, query=dst[1], key=src[2])
        return view.gated(view.envelope)[:, None].expand_as(radial)

    def finish(self, total: Tensor, nodes: Tensor, inv_sqrt_degree: Tensor) -> Tensor:
        """From the sums (N, D, H) and the node features (N, D, H) to (N, D, C)."""
        if self.attention is None:
            factor = inv_sqrt_degree
        else:
            factor = self.attention.gate(nodes[:, 0])
        total = total * self.path.back_scale * factor[:, None]
        if self.attention_maps is not None:
            total = self.attention_maps.output(total)
        if self.message_node is not None:
            query, context = (by_focus(x, self.n_focus) for x in (total, nodes))
            update = self.message_node(query, context)
            total = total + update.movedim(0, 2).flatten(2)
        if self.node_cartesian is not None:
            total = self.node_cartesian(total, nodes)
        return self.post_focus_mix(total)


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
