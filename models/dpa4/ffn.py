"""Equivariant feed-forward networks, of the blocks and of the read-out."""

from torch import Tensor, nn

from .config import DescriptorConfig, GridOption
from .gates import PackedGate
from .grid_net import GridActivation, GridLayout
from .linear import SO3Linear

__all__ = ["FeedForward", "block_network", "readout_network"]


class FeedForward(nn.Module):
    """Linear, nonlinearity, linear on packed rows, (N, D, C) -> (N, D, C)."""

    def __init__(
        self, lmax: int, channels: int, hidden: tuple[int, int], act, bias: bool
    ):
        super().__init__()
        self.so3_linear_1 = SO3Linear(lmax, channels, hidden[0], bias)
        self.act = act
        self.so3_linear_2 = SO3Linear(lmax, hidden[1], channels, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.so3_linear_2(self._activate(self.so3_linear_1(x)))

    def _activate(self, x: Tensor) -> Tensor:
        return self.act(x[None])[0]  # one focus stream


class GatedFeedForward(FeedForward):
    """Feed-forward network whose second half of the hidden channels gates the first."""

    def _activate(self, x: Tensor) -> Tensor:
        value, gate = x.chunk(2, dim=-1)
        return self.act(value[None], gate[None])[0]


def block_network(config: DescriptorConfig) -> FeedForward:
    """Network of an interaction block, on the rows of the node state."""
    if config.ffn_grid is not None:
        return _grid_network(config, config.ffn_grid, config.frame_kmax, glu=True)
    return _gated_network(config, config.node_lmax)


def readout_network(config: DescriptorConfig) -> FeedForward:
    """Network after the last block: on all rows with a grid, or on the scalar row.

    ``config`` is that of the last block. The frames are limited by the degree of the node
    state here, inside the blocks by that of the messages.
    """
    if config.readout == "none":
        return _gated_network(config, 0)
    option = GridOption("so3", config.readout)
    return _grid_network(config, option, min(config.kmax, config.node_lmax), config.glu)


def _gated_network(config: DescriptorConfig, lmax: int) -> FeedForward:
    hidden, bias = config.ffn_channels(config.glu), config.mlp_bias
    act = PackedGate(lmax, 1, hidden, config.activation, bias)
    if config.glu:
        return GatedFeedForward(lmax, config.channels, (2 * hidden, hidden), act, bias)
    return FeedForward(lmax, config.channels, (hidden, hidden), act, bias)


def _grid_network(
    config: DescriptorConfig, option: GridOption, kmax: int, glu: bool
) -> FeedForward:
    layout = GridLayout(option, config.node_lmax, kmax)
    hidden, bias = config.ffn_channels(glu), config.mlp_bias
    act = GridActivation(layout, 1, hidden, bias)
    width = layout.n_frames * hidden
    return FeedForward(config.node_lmax, config.channels, (2 * width, width), act, bias)
