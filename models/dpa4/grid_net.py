"""Point-wise products of equivariant fields on a grid.

Fields are coefficients with frame-major channels, (B, R, n_K c), R rows in packed order
or in that of the edge frame. All grid networks share the *scalar path*: a gate from the
two scalar rows on everything, plus ``silu(left) * right`` on the scalar itself.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import GridOption
from .grid import frame_orders, so3_grid, sphere_grid
from .layout import degree_of_row, packed_size
from .linear import ChannelLinear, FocusLinear, constant, parameter

__all__ = ["CrossProduct", "GridActivation", "GridLayout", "ScalarPath"]


class GridLayout:
    """Which coefficients a grid network sees.

    Attributes:
        lmax: highest degree.
        kmax: highest frame order; the sphere has none.
        rows: packed rows present, in the order of the field.
    """

    def __init__(self, option: GridOption, lmax: int, kmax: int, rows=None, mmax=None):
        self.option, self.lmax = option, lmax
        self.kmax = kmax if option.kind == "so3" else 0
        self.rows = np.arange(packed_size(lmax)) if rows is None else rows
        self._mmax = lmax if mmax is None else mmax

    @property
    def degrees(self) -> np.ndarray:
        """Degree of each row present, (R,)."""
        return degree_of_row(self.lmax)[self.rows]

    @property
    def n_frames(self) -> int:
        """Frames per channel, n_K."""
        return len(frame_orders(self.kmax))

    def matrices(self) -> tuple[np.ndarray, np.ndarray]:
        """Synthesis (G, R n_K) and analysis (R n_K, G)."""
        if self.option.kind == "so3":
            synthesis, analysis = so3_grid(self.lmax, self.kmax)
        else:
            synthesis, analysis = sphere_grid(self.lmax, self._mmax)
        columns = self.rows[:, None] * self.n_frames + np.arange(self.n_frames)
        return synthesis[:, columns.ravel()], analysis[columns.ravel()]


class GridProduct(nn.Module):
    """Product of two fields on the grid, of the kind that the option names."""

    def __init__(self, layout: GridLayout, channels: int, joined: bool):
        super().__init__()
        synthesis, analysis = layout.matrices()
        self.synthesis, self.analysis = constant(synthesis), constant(analysis)
        self.n_frames = layout.n_frames
        self.grid_op = _operation(layout.option, channels, joined)

    def forward(self, left: Tensor, right: Tensor, scalars: Tensor) -> Tensor:
        """Fields (B, R, n_K, c), their scalar rows (B, 2 c) -> (B, R, n_K, c)."""
        return self.grid_op(self, left, right, scalars)

    def combine(self, left: Tensor, right: Tensor) -> Tensor:
        """Product of two fields, (B, R, n_K, c) each."""
        return self.analyse(self.multiply(left, right))

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """Synthesise both, multiply: (B, G, c)."""
        return (self.synthesis @ left.flatten(1, 2)) * (
            self.synthesis @ right.flatten(1, 2)
        )

    def analyse(self, values: Tensor) -> Tensor:
        """Values on the grid (B, G, c) -> (B, R, n_K, c)."""
        return (self.analysis @ values).unflatten(1, (-1, self.n_frames))


def _operation(option: GridOption, channels: int, joined: bool) -> nn.Module:
    if option.operation == "branch":
        return BranchOperation(channels, option.n_branches)
    return (
        MLPOperation(channels, joined) if option.operation == "mlp" else PlainOperation()
    )


class PlainOperation(nn.Module):
    """The bare product."""

    def forward(self, product: GridProduct, left: Tensor, right: Tensor, scalars: Tensor):
        return product.combine(left, right)


class BranchOperation(nn.Module):
    """Sum of products of projected fields, weighted by a softmax over the branches."""

    def __init__(self, channels: int, n_branches: int):
        super().__init__()
        self.n_branches = n_branches
        self.left_proj = ChannelLinear(channels, n_branches * channels)
        self.right_proj = ChannelLinear(channels, n_branches * channels)
        self.router = ChannelLinear(2 * channels, n_branches)
        self.out_proj = ChannelLinear(channels, channels)

    def forward(self, product: GridProduct, left: Tensor, right: Tensor, scalars: Tensor):
        left, right = self.left_proj(left), self.right_proj(right)
        if self.n_branches == 1:  # a softmax over one branch is one
            return self.out_proj(product.combine(left, right))
        values = product.multiply(left, right)
        share = self.router(scalars).softmax(-1)[:, None, :, None]
        values = (values.unflatten(-1, (self.n_branches, -1)) * share).sum(-2)
        return self.out_proj(product.analyse(values))


class MLPOperation(nn.Module):
    """Product of two wider projections; ``joined``: each of them sees both fields."""

    def __init__(self, channels: int, joined: bool):
        super().__init__()
        self.joined = joined
        n_in = 2 * channels if joined else channels
        self.left_proj = ChannelLinear(n_in, 2 * channels)
        self.right_proj = ChannelLinear(n_in, 2 * channels)
        self.out_proj = ChannelLinear(2 * channels, channels)

    def forward(self, product: GridProduct, left: Tensor, right: Tensor, scalars: Tensor):
        if self.joined:
            left = right = torch.cat([left, right], dim=-1)
        result = product.combine(self.left_proj(left), self.right_proj(right))
        return self.out_proj(result)


class GridActivation(nn.Module):
    """Nonlinearity that multiplies the two halves of the channels.

    (F, B, R, 2 n_K c) -> (F, B, R, n_K c), F focus streams.
    """

    def __init__(self, layout: GridLayout, n_focus: int, channels: int, bias: bool):
        super().__init__()
        self.product = GridProduct(layout, channels, joined=True)
        self.scalar_gate = FocusLinear(n_focus, 2 * channels, channels, bias)
        self.scalar_path = ScalarPath()

    def forward(self, x: Tensor) -> Tensor:
        fields = x.unflatten(-1, (2, self.product.n_frames, -1))
        scalars = fields[:, :, 0, :, 0].flatten(2)
        gate, streams = self.scalar_gate(scalars), len(x)
        left, right = fields.flatten(0, 1).unbind(2)
        scalars = scalars.flatten(0, 1)
        result = self.product(left, right, scalars)
        result = self.scalar_path(result, scalars, gate.flatten(0, 1)).flatten(2)
        return result.unflatten(0, (streams, -1))


class CrossProduct(nn.Module):
    """Product of a query with a context, e.g. of the aggregated message with the node.

    On the SO(3) grid both are lifted to frames by one map, multiplied, and contracted
    again; on the sphere they are used as they are. Focus streams do not mix.
    """

    def __init__(self, layout: GridLayout, n_focus: int, channels: int, bias: bool):
        super().__init__()
        self.product = GridProduct(layout, channels, joined=False)
        self.scalar_gate = FocusLinear(n_focus, 2 * channels, channels, bias)
        self.scalar_path = ScalarPath()
        self.residual_scale = parameter(n_focus, channels)
        self.frame_expand = self.frame_contract = None
        if layout.option.kind == "so3":
            lifted = layout.n_frames * channels
            self.frame_expand = RowLinear(layout.degrees, channels, lifted)
            self.frame_contract = RowLinear(layout.degrees, lifted, channels)

    def forward(self, query: Tensor, context: Tensor) -> Tensor:
        """Both (F, B, R, C) -> (F, B, R, C)."""
        scalars = torch.cat([query[:, :, 0], context[:, :, 0]], dim=-1)
        gate, scalars = self.scalar_gate(scalars).flatten(0, 1), scalars.flatten(0, 1)
        left, right = self._lift(query.flatten(0, 1)), self._lift(context.flatten(0, 1))
        result = self.product(left, right, scalars)
        result = self.scalar_path(result, scalars, gate).flatten(2)
        if self.frame_contract is not None:
            result = self.frame_contract(result)
        result = result.unflatten(0, (len(query), -1))
        return result * self.residual_scale[:, None, None, :]

    def _lift(self, x: Tensor) -> Tensor:
        """(B, R, C) -> (B, R, n_K, C)."""
        lifted = x if self.frame_expand is None else self.frame_expand(x)
        return lifted.unflatten(-1, (self.product.n_frames, -1))


class RowLinear(nn.Module):
    """One map per degree on rows of any order, (B, R, n_in) -> (B, R, n_out)."""

    def __init__(self, degrees: np.ndarray, n_in: int, n_out: int):
        super().__init__()
        self.degrees = degrees.tolist()
        self.weight = parameter(max(self.degrees) + 1, n_in, n_out)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bri,rio->bro", x, self.weight[self.degrees])


class ScalarPath(nn.Module):
    """Gate every row of (B, R, n_K, c); add silu(left) * right to row 0 of frame 0."""

    def forward(self, product: Tensor, scalars: Tensor, gate: Tensor) -> Tensor:
        """Product (B, R, n_K, c), scalars (B, 2 c), gate (B, c) -> (B, R, n_K, c)."""
        left, right = scalars.chunk(2, dim=-1)
        gated = product * gate.sigmoid()[:, None, None, :]
        scalar = (F.silu(left) * right)[:, None, None, :]
        missing = (0, 0, 0, product.shape[2] - 1, 0, product.shape[1] - 1)
        return gated + F.pad(scalar, missing)
