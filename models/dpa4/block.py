"""Interaction block: convolution and feed-forward networks with norms and residuals."""

from torch import Tensor, nn
from torch.nn import functional as F

from ..execution import Executor
from .config import DescriptorConfig
from .convolution import SO2Convolution
from .ffn import block_network
from .layout import packed_size
from .linear import parameter
from .norm import EquivariantNorm

__all__ = ["InteractionBlock"]

_NORM_EPS = 1e-5


class InteractionBlock(nn.Module):
    """``x + norm(conv(x))``, then ``x + ffn(norm(x))``."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.n_rows, self.node_rows = (
            packed_size(config.lmax),
            packed_size(config.node_lmax),
        )
        # Without edge_norm a floor of one keeps small messages small.
        floor = _NORM_EPS if config.edge_norm else 1.0
        of_message = (config.lmax, config.channels)
        of_node = (config.node_lmax, config.channels, _NORM_EPS)
        so2_pre, so2_post, ffn_pre, ffn_post = config.sandwich_norm
        n_ffn = config.ffn_blocks
        self.so2_conv = SO2Convolution(config)
        self.pre_so2_norm = _norm(so2_pre, *of_message, _NORM_EPS)
        self.post_so2_norm = _norm(so2_post, *of_message, floor)
        self.ffns = nn.ModuleList(block_network(config) for _ in range(n_ffn))
        self.pre_ffn_norms = nn.ModuleList(_norm(ffn_pre, *of_node) for _ in range(n_ffn))
        self.post_ffn_norms = nn.ModuleList(
            _norm(ffn_post, *of_node) for _ in range(n_ffn)
        )
        self.adam_ffn_layer_scales = nn.ParameterList(
            parameter(config.channels) for _ in range(n_ffn if config.layer_scale else 0)
        )

    def forward(
        self, x: Tensor, run: Executor, scalars: Tensor, inv_sqrt_degree: Tensor
    ) -> Tensor:
        """Update the node state.

        Args:
            x: node state, (N, D, C).
            run: how to go over edges and atoms.
            scalars: scalar embedding of the atoms, (N, C).
            inv_sqrt_degree: one over the root of the smooth degree, (N, 1).
        """
        nodes, total = self.message_sum(x, run, scalars)
        return run.over_nodes(self._update, x, total, nodes, inv_sqrt_degree)[0]

    def message_sum(
        self, x: Tensor, run: Executor, scalars: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Features of the atoms and sums of the messages that they receive, (N, D, H)."""
        prepared = run.over_nodes(self._prepare, x)
        messages = self.so2_conv.on_edges
        src, dst = messages.at_edges(scalars, *prepared)
        return prepared[0], run.over_edges(messages.edge_sum, src, dst)[0]

    def convolution_update(
        self, total: Tensor, nodes: Tensor, inv_sqrt_degree: Tensor
    ) -> tuple[Tensor]:
        """What the convolution adds to the state, zero on rows that messages lack."""
        update = self.so2_conv.finish(total, nodes, inv_sqrt_degree)
        update = self.post_so2_norm(update)
        return (F.pad(update, (0, 0, 0, self.node_rows - self.n_rows)),)

    def _prepare(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.so2_conv.prepare(self.pre_so2_norm(x[:, : self.n_rows]))

    def _update(self, x: Tensor, *convolved: Tensor) -> tuple[Tensor]:
        x = x + self.convolution_update(*convolved)[0]
        for i in range(len(self.ffns)):
            x = x + self.feed_forward(i, x)
        return (x,)

    def feed_forward(self, i: int, x: Tensor) -> Tensor:
        """One feed-forward network with its norms, (N, D, C) -> (N, D, C)."""
        update = self.post_ffn_norms[i](self.ffns[i](self.pre_ffn_norms[i](x)))
        return (
            update * self.adam_ffn_layer_scales[i]
            if self.adam_ffn_layer_scales
            else update
        )


def _norm(present: bool, lmax: int, channels: int, eps: float) -> nn.Module:
    return EquivariantNorm(lmax, channels, eps) if present else nn.Identity()
