"""SO(2)-equivariant maps in the edge frame.

Edge features are lists with one tensor per order m: (F, E, n, C) for m = 0 and
(F, E, 2 n, C) for m > 0, the rows of -m first, n = L - m + 1 degrees, F focus streams.
Orders never mix in a linear map; the gates couple them through the scalar row.
"""

import torch
from torch import Tensor, nn

from .activation import Activation
from .config import DescriptorConfig
from .linear import FocusLinear, parameter

__all__ = ["GatedActivation", "MixingStack", "RadialMixer", "SO2Linear"]


class SO2Linear(nn.Module):
    """The general linear map that commutes with rotations about the edge.

    With ``z = x_-m + i x_+m`` it is ``z (U + i V)``; for m = 0 any real matrix.
    """

    def __init__(self, config: DescriptorConfig, widening: int = 1):
        super().__init__()
        self.n_focus, channels = config.n_focus, config.focus_channels
        sizes = [(config.lmax - m + 1) * channels for m in range(config.mmax + 1)]
        self.weight_m0 = parameter(sizes[0], self.n_focus * sizes[0] * widening)
        self.weight_m = nn.ParameterList(
            parameter(n, self.n_focus * 2 * n * widening) for n in sizes[1:]
        )
        self.bias0 = (
            parameter(config.hidden_channels * widening) if config.mlp_bias else None
        )

    def forward(self, orders: list[Tensor]) -> list[Tensor]:
        """Map each order; the bias is the caller's, who may have to scale it."""
        return [
            torch.bmm(x.flatten(2), w).unflatten(2, (x.shape[2], -1))
            for x, w in zip(orders, self.matrices(), strict=True)
        ]

    def matrices(self) -> list[Tensor]:
        """Per order (F, n C, n C), or (F, 2 n C, 2 n C) with the rows of -m first."""
        matrices = [self.weight_m0.unflatten(1, (self.n_focus, -1)).transpose(0, 1)]
        for weight in self.weight_m:
            u, v = weight.unflatten(1, (self.n_focus, 2, -1)).permute(2, 1, 0, 3)
            top, bottom = torch.cat([u, v], -1), torch.cat([-v, u], -1)
            matrices.append(torch.cat([top, bottom], -2))
        return matrices


class GatedActivation(nn.Module):
    """Activation of the scalar row, a sigmoid gate per degree and channel on others."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.lmax, channels = config.lmax, config.focus_channels
        self.activation = Activation(config.so2_activation)
        if self.lmax > 0:
            n_gates = self.lmax * channels
            self.gate_linear = FocusLinear(
                config.n_focus, channels, n_gates, config.mlp_bias
            )

    def forward(self, orders: list[Tensor]) -> list[Tensor]:
        scalar = orders[0][:, :, 0]
        activated = self.activation(scalar)[:, :, None]
        if self.lmax == 0:
            return [activated]
        gates = self.gate_linear(scalar).sigmoid().unflatten(2, (self.lmax, -1))
        result = [torch.cat([activated, orders[0][:, :, 1:] * gates], dim=2)]
        for m, x in enumerate(orders[1:], start=1):
            signs = x.unflatten(2, (2, -1))  # the gate is the same for -m and +m
            result.append((signs * gates[:, :, None, m - 1 :]).flatten(2, 3))
        return result


class MixingStack(nn.Module):
    """Residual layers ``x + act(SO2Linear(x))``; the last one has no activation."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        n_layers = config.mixing_layers
        self.so2_linears = nn.ModuleList(SO2Linear(config) for _ in range(n_layers))
        self.non_linearities = nn.ModuleList(
            GatedActivation(config) for _ in range(n_layers - 1)
        )

    def forward(self, orders: list[Tensor], bias_scale: Tensor) -> list[Tensor]:
        """Mix the rows; ``bias_scale`` is for stacks with biases, see ``so2_options``."""
        for i, linear in enumerate(self.so2_linears):
            update = linear(orders)
            if i < len(self.non_linearities):
                update = self.non_linearities[i](update)
            orders = [x + y for x, y in zip(orders, update, strict=True)]
        return orders


class RadialMixer(nn.Module):
    """Degree-mixing kernels that depend on the radial features of the edge.

    The kernel of order m maps degree l_in to l_out and is the same for -m and +m. It acts
    on rows, not on channels, so it multiplies the small rotation matrix of the edge
    before that meets the features. With mode ``degree_channel`` there are ``rank``
    kernels, each followed by a channel-wise scale.
    """

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.with_channels = config.radial_so2_mode == "degree_channel"
        self.rank = config.radial_so2_rank if self.with_channels else 1
        self.n_degrees = [config.lmax - m + 1 for m in range(config.mmax + 1)]
        n_kernel = sum(n * n for n in self.n_degrees)
        n_in = (config.lmax + 1) * config.hidden_channels
        self.weight = parameter(n_in, n_kernel * self.rank)
        if self.with_channels:
            self.channel_basis = parameter(self.rank, config.hidden_channels)

    def forward(
        self, source: Tensor, rotation: list[Tensor], radial: Tensor
    ) -> list[Tensor]:
        """Rotated and mixed source features.

        Args:
            source: node features at the source of each edge, (E, D, H).
            rotation: per order (E, n or 2 n, D).
            radial: radial features at hidden width, (E, L + 1, H).

        Returns:
            Per order (E, n or 2 n, H).
        """
        sizes = [rows.shape[1] for rows in rotation]
        kernels = radial.flatten(1) @ self.weight
        mixed = self._mix(rotation, kernels)  # (E, rows, rank, D)
        local = mixed.flatten(1, 2) @ source
        if self.with_channels:
            local = local.unflatten(1, (-1, self.rank)) * self.channel_basis
            local = local.sum(2)
        return local.split(sizes, dim=1)

    @property
    def scale(self) -> Tensor | None:
        """Factor of each kernel and channel, (rank, H), where there is one."""
        return self.channel_basis if self.with_channels else None

    def _mix(self, rotation: list[Tensor], kernels: Tensor) -> Tensor:
        """Kernels (E, n_kernel rank) times rotation, (E, rows, rank, D)."""
        kernels = kernels.unflatten(1, (-1, self.rank))
        parts = kernels.split([n * n for n in self.n_degrees], dim=1)
        mixed = []
        for n, kernel, rows in zip(self.n_degrees, parts, rotation, strict=True):
            matrix = kernel.unflatten(1, (n, n))  # (E, in, out, rank)
            matrix = matrix.permute(0, 2, 3, 1).flatten(1, 2)  # (E, out rank, in)
            signs = rows.unflatten(1, (-1, n))  # (E, 1 or 2, n, D)
            product = matrix[:, None] @ signs
            mixed.append(product.unflatten(2, (n, self.rank)).flatten(1, 2))
        return torch.cat(mixed, dim=1)
