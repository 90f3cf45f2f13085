"""Point-wise products of equivariant fields on a grid.

Fields are packed coefficients with frame-major channels, (B, D, n_K c). All grid networks
share the *scalar path*: a gate from the two scalar rows on everything, plus
``silu(left) * right`` on the scalar itself.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import DescriptorConfig
from .grid import frame_orders, so3_grid, sphere_grid
from .linear import ChannelLinear, FocusLinear, SO3Linear, constant, parameter

__all__ = ["GridActivation", "MessageNodeProduct"]


class GridProduct(nn.Module):
    """Analyse the product of two synthesised fields, each (B, D, n_K c)."""

    def __init__(self, lmax: int, kmax: int | None):
        super().__init__()
        synthesis, analysis = sphere_grid(lmax) if kmax is None else so3_grid(lmax, kmax)
        self.n_frames = len(frame_orders(kmax or 0))
        self.synthesis, self.analysis = constant(synthesis), constant(analysis)

    def to_grid(self, field: Tensor) -> Tensor:
        """(B, D, n_K, c) -> (B, G, c)."""
        return self.synthesis @ field.flatten(1, 2)

    def from_grid(self, values: Tensor) -> Tensor:
        """(B, G, c) -> (B, D, n_K, c)."""
        return (self.analysis @ values).unflatten(1, (-1, self.n_frames))

    def split_frames(self, field: Tensor) -> Tensor:
        """(B, D, n_K c) -> (B, D, n_K, c)."""
        return field.unflatten(-1, (self.n_frames, -1))


class BranchOperation(nn.Module):
    """Sum of products of projected fields, weighted by a softmax over the branches."""

    def __init__(self, channels: int, n_branches: int):
        super().__init__()
        self.n_branches = n_branches
        self.left_proj = ChannelLinear(channels, n_branches * channels)
        self.right_proj = ChannelLinear(channels, n_branches * channels)
        self.router = ChannelLinear(2 * channels, n_branches)
        self.out_proj = ChannelLinear(channels, channels)

    def forward(self, grid: GridProduct, left: Tensor, right: Tensor, scalars: Tensor):
        product = grid.to_grid(self.left_proj(left)) * grid.to_grid(
            self.right_proj(right)
        )
        if self.n_branches > 1:  # a softmax over one branch is one
            share = self.router(scalars).softmax(-1)[:, None, :, None]
            product = (product.unflatten(-1, (self.n_branches, -1)) * share).sum(-2)
        return self.out_proj(grid.from_grid(product))


class MLPOperation(nn.Module):
    """Product of two projections of both fields together."""

    def __init__(self, channels: int):
        super().__init__()
        self.left_proj = ChannelLinear(2 * channels, 2 * channels)
        self.right_proj = ChannelLinear(2 * channels, 2 * channels)
        self.out_proj = ChannelLinear(2 * channels, channels)

    def forward(self, grid: GridProduct, left: Tensor, right: Tensor, scalars: Tensor):
        both = torch.cat([left, right], dim=-1)
        product = grid.to_grid(self.left_proj(both)) * grid.to_grid(self.right_proj(both))
        return self.out_proj(grid.from_grid(product))


class PlainOperation(nn.Module):
    """The bare product."""

    def forward(self, grid: GridProduct, left: Tensor, right: Tensor, scalars: Tensor):
        return grid.from_grid(grid.to_grid(left) * grid.to_grid(right))


class GridActivation(nn.Module):
    """Nonlinearity of a feed-forward network, (N, D, 2 n_K h) -> (N, D, n_K h).

    The two halves of the channels are multiplied on the grid. ``kmax`` None is the sphere,
    a number the SO(3) grid with that many frame orders.
    """

    def __init__(self, lmax: int, kmax: int | None, channels: int, operation: nn.Module):
        super().__init__()
        self.grid = GridProduct(lmax, kmax)
        self.grid_op = operation
        self.scalar_gate = FocusLinear(1, 2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        left, right = (self.grid.split_frames(half) for half in x.chunk(2, dim=-1))
        scalars = torch.cat([left[:, 0, 0], right[:, 0, 0]], dim=-1)
        product = self.grid_op(self.grid, left, right, scalars)
        gate = self.scalar_gate(scalars[None])[0]
        return _scalar_path(product, scalars, gate).flatten(2)


class MessageNodeProduct(nn.Module):
    """Product of the aggregated message with the node itself on the SO(3) grid.

    Both are lifted to frames by one map, multiplied, and contracted again; focus streams
    do not mix. Message and node (N, D, F C) -> (N, D, F C).
    """

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        lmax, kmax = config.lmax, config.block_kmax
        self.n_focus, channels = config.n_focus, config.focus_channels
        self.grid = GridProduct(lmax, kmax)
        n_frames = self.grid.n_frames
        self.frame_expand = SO3Linear(lmax, channels, n_frames * channels)
        self.frame_contract = SO3Linear(lmax, n_frames * channels, channels)
        self.scalar_gate = FocusLinear(self.n_focus, 2 * channels, channels)
        self.residual_scale = parameter(self.n_focus, channels)

    def forward(self, message: Tensor, node: Tensor) -> Tensor:
        message, node = self._by_focus(message), self._by_focus(node)  # (F, N, D, C)
        scalars = torch.cat([message[:, :, 0], node[:, :, 0]], dim=-1)
        gate = self.scalar_gate(scalars)
        left, right = (self._lift(x.flatten(0, 1)) for x in (message, node))
        product = self.grid.from_grid(self.grid.to_grid(left) * self.grid.to_grid(right))
        product = _scalar_path(product, scalars.flatten(0, 1), gate.flatten(0, 1))
        result = self.frame_contract(product.flatten(2)).unflatten(0, (self.n_focus, -1))
        result = result * self.residual_scale[:, None, None, :]
        return result.movedim(0, 2).flatten(2)

    def _by_focus(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_focus, -1)).movedim(2, 0)

    def _lift(self, x: Tensor) -> Tensor:
        return self.grid.split_frames(self.frame_expand(x))


def _scalar_path(product: Tensor, scalars: Tensor, gate: Tensor) -> Tensor:
    """Gate every row of (B, D, n_K, c); add silu(left) * right to row 0 of frame 0."""
    left, right = scalars.chunk(2, dim=-1)
    gated = product * gate.sigmoid()[:, None, None, :]
    scalar = (F.silu(left) * right)[:, None, None, :]
    missing = (0, 0, 0, product.shape[2] - 1, 0, product.shape[1] - 1)
    return gated + F.pad(scalar, missing)
