"""Interaction block and feed-forward networks."""

from torch import Tensor, nn
from torch.nn import functional as F

from .config import DescriptorConfig
from .convolution import SO2Convolution
from .geometry import EdgeGeometry
from .grid_net import BranchOperation, GridActivation, MLPOperation, PlainOperation
from .linear import SO3Linear
from .norm import EquivariantNorm

__all__ = ["FeedForward", "InteractionBlock", "readout_network"]

_NORM_EPS = 1e-5


class FeedForward(nn.Module):
    """Linear, nonlinearity, linear on packed rows, (N, D, C) -> (N, D, C)."""

    def __init__(self, lmax: int, channels: int, hidden: tuple[int, int], act: nn.Module):
        super().__init__()
        self.so3_linear_1 = SO3Linear(lmax, channels, hidden[0])
        self.act = act
        self.so3_linear_2 = SO3Linear(lmax, hidden[1], channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.so3_linear_2(self.act(self.so3_linear_1(x)))


class ScalarGLU(nn.Module):
    """``value * silu(gate)``, the value in the first half of the channels."""

    def forward(self, x: Tensor) -> Tensor:
        value, gate = x.chunk(2, dim=-1)
        return value * F.silu(gate)


class InteractionBlock(nn.Module):
    """Convolution and feed-forward network, each with its norm and a residual."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        lmax, channels = config.lmax, config.channels
        self.so2_conv = SO2Convolution(config)
        # Without edge_norm a floor of one keeps small messages small.
        floor = _NORM_EPS if config.edge_norm else 1.0
        self.post_so2_norm = EquivariantNorm(lmax, channels, floor)
        self.pre_ffn_norms = nn.ModuleList([EquivariantNorm(lmax, channels, _NORM_EPS)])
        self.ffns = nn.ModuleList([_block_network(config)])

    def forward(
        self, x: Tensor, geometry: EdgeGeometry, rotation: list[Tensor], radial: Tensor
    ) -> Tensor:
        """Node state (N, D, C) -> (N, D, C); see ``SO2Convolution`` for the others."""
        x = x + self.post_so2_norm(self.so2_conv(x, geometry, rotation, radial))
        for norm, network in zip(self.pre_ffn_norms, self.ffns, strict=True):
            x = x + network(norm(x))
        return x


def _block_network(config: DescriptorConfig) -> FeedForward:
    kmax = config.block_kmax if config.ffn_so3_grid else None
    if config.grid_branch:
        operation = BranchOperation(config.ffn_channels, config.grid_branch)
    else:
        operation = PlainOperation()
    return _grid_network(config, kmax, operation)


def readout_network(config: DescriptorConfig) -> FeedForward:
    """Network after the last block: on all rows with a grid, or on the scalar row."""
    if config.so3_readout == "mlp":
        return _grid_network(config, config.block_kmax, MLPOperation(config.ffn_channels))
    hidden = config.ffn_channels
    return FeedForward(0, config.channels, (2 * hidden, hidden), ScalarGLU())


def _grid_network(config: DescriptorConfig, kmax: int | None, operation: nn.Module):
    act = GridActivation(config.lmax, kmax, config.ffn_channels, operation)
    width = act.grid.n_frames * config.ffn_channels
    return FeedForward(config.lmax, config.channels, (2 * width, width), act)
