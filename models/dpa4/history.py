"""Blocks whose inputs are attention means over earlier states, without residuals.

``full``: the history holds the output of every unit (convolution, feed-forward network);
``block``: it holds one sum per block.
"""

from torch import Tensor, nn

from ..execution import Executor
from .block import InteractionBlock
from .config import DescriptorConfig
from .depth_attention import DepthAttention

__all__ = ["HistoryBlock", "final_attention"]


class HistoryBlock(InteractionBlock):
    """An interaction block that reads and extends the history of states."""

    def __init__(self, config: DescriptorConfig):
        super().__init__(config)
        self.per_block = config.depth_attention == "block"
        self.attn_res_so2 = final_attention(config)
        self.attn_res_ffns = nn.ModuleList(
            final_attention(config) for _ in range(config.ffn_blocks)
        )

    def forward(
        self,
        history: list[Tensor],
        current: Tensor,
        run: Executor,
        scalars: Tensor,
        inv_sqrt_degree: Tensor,
    ) -> tuple[list[Tensor], Tensor]:
        """Evaluate.

        Args:
            history: earlier states, (N, D, C) each, D that of this block.
            current: the running state.
            run: as for ``InteractionBlock``, and so the others.
            scalars: (N, C).
            inv_sqrt_degree: (N, 1).

        Returns:
            What this block adds to the history, and its output.
        """
        x = self.attn_res_so2.mean(history, current)
        nodes, total = self.message_sum(x, run, scalars)
        convolved = run.over_nodes(self.convolution_update, total, nodes, inv_sqrt_degree)
        current = total = convolved[0]
        added = [current]
        for i in range(len(self.ffns)):
            sources = history + ([total] if self.per_block else added)
            current = self.attn_res_ffns[i].mean(sources, current)
            current = self.feed_forward(i, current)
            added.append(current)
            total = total + current
        return ([total] if self.per_block else added), current


def final_attention(config: DescriptorConfig) -> DepthAttention:
    """Attention over the history with the options of the blocks."""
    return DepthAttention(
        config.depth_query, config.channels, config.eps, config.mlp_bias
    )
