"""Rarer forms of the edge-frame maps: drop-ins of those in ``so2.py``."""

import numpy as np
import torch
from torch import Tensor, nn

from .config import DescriptorConfig
from .depth_attention import DepthAttention
from .grid_net import CrossProduct, GridActivation, GridLayout
from .layout import degree_of_row, order_rows
from .linear import parameter
from .norm import balanced_normalize
from .so2 import MixingStack, SO2Linear

__all__ = [
    "ChannelRadialMixer",
    "NodeWiseProduct",
    "OptionalMixingStack",
    "needs_options",
]


def needs_options(config: DescriptorConfig) -> bool:
    """Whether the mixing stack has anything beyond linears, gates and residuals."""
    return bool(
        config.so2_norm
        or config.layer_scale
        or config.mlp_bias
        or config.so2_grid
        or config.so2_attn_res != "none"
    )


def frame_rows(config: DescriptorConfig) -> np.ndarray:
    """Packed row of each row in the edge frame, orders joined, (D_m,)."""
    return np.concatenate([order_rows(config.lmax, m) for m in range(config.mmax + 1)])


def _order_sizes(config: DescriptorConfig) -> list[int]:
    return [len(order_rows(config.lmax, m)) for m in range(config.mmax + 1)]


class OptionalMixingStack(MixingStack):
    """Mixing stack with norms, biases, layer scales, a grid or depth attention."""

    def __init__(self, config: DescriptorConfig):
        super().__init__(config)
        n_layers = config.mixing_layers
        focus, channels = config.n_focus, config.focus_channels
        if config.so2_grid:
            layout = GridLayout(
                config.so2_grid, config.lmax, 0, frame_rows(config), config.mmax
            )
            for i in range(n_layers - 1):
                self.so2_linears[i] = SO2Linear(config, widening=2)
                self.non_linearities[i] = JoinedOrders(
                    GridActivation(layout, focus, channels, config.mlp_bias)
                )
        self.so2_inter_norms = nn.ModuleList(
            ReducedNorm(config) for _ in range(n_layers - 1 if config.so2_norm else 0)
        )
        self.adam_so2_layer_scales = nn.ParameterList(
            parameter(focus, channels)
            for _ in range(n_layers if config.layer_scale else 0)
        )
        query = config.so2_attn_res
        self.so2_layer_attn_res = nn.ModuleList(
            DepthAttention(query, config.hidden_channels, config.eps, config.mlp_bias)
            for _ in range(0 if query == "none" else n_layers)
        )

    def forward(self, orders: list[Tensor], bias_scale: Tensor) -> list[Tensor]:
        """Mix the rows.

        Args:
            orders: per order (F, E, n or 2 n, C).
            bias_scale: factor of the first layer's bias, (F, E, C): it must vanish at the
                cutoff as the message does.
        """
        history = [orders]
        for i in range(len(self.so2_linears)):
            if self.so2_layer_attn_res:
                orders = self._mean(i, history, orders)
            update = self._branch(i, orders, bias_scale)
            history.append(update)
            orders = [x + y for x, y in zip(orders, update, strict=True)]
        return orders

    def _branch(self, i: int, orders: list[Tensor], bias_scale: Tensor) -> list[Tensor]:
        linear, inner = self.so2_linears[i], i < len(self.non_linearities)
        if self.so2_inter_norms and inner:
            orders = self.so2_inter_norms[i](orders)
        update = linear(orders)
        if linear.bias0 is not None:
            bias = linear.bias0.unflatten(0, (update[0].shape[0], 1, -1))
            if i == 0:
                bias = bias * bias_scale.repeat(
                    1, 1, bias.shape[-1] // bias_scale.shape[-1]
                )
            scalar = update[0][:, :, :1] + bias[:, :, None]
            update[0] = torch.cat([scalar, update[0][:, :, 1:]], dim=2)
        if inner:
            update = self.non_linearities[i](update)
        if self.adam_so2_layer_scales:
            scale = self.adam_so2_layer_scales[i][:, None, None, :]
            update = [x * scale for x in update]
        return update

    def _mean(self, i: int, history: list[list[Tensor]], current: list[Tensor]):
        if len(history) == 1:
            return history[0]
        scalars = [_scalars(x) for x in history]
        weights = self.so2_layer_attn_res[i](scalars, _scalars(current))
        return [
            sum(w[:, None, None] * x for w, x in zip(weights, sources, strict=True))
            for sources in zip(*history, strict=True)
        ]


def _scalars(orders: list[Tensor]) -> Tensor:
    """Scalar rows of all streams side by side, (E, F C)."""
    return orders[0][:, :, 0].movedim(0, 1).flatten(1)


class JoinedOrders(nn.Module):
    """Applies a module on joined rows (F, E, D_m, C) to a list of orders."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, orders: list[Tensor]) -> list[Tensor]:
        sizes = [x.shape[2] for x in orders]
        return list(self.inner(torch.cat(orders, dim=2)).split(sizes, dim=2))


class ReducedNorm(nn.Module):
    """Equivariant norm on the rows of the edge frame, per edge and focus stream."""

    _EPS = 1e-5

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.sizes = _order_sizes(config)
        rows = frame_rows(config)
        self.degrees = degree_of_row(config.lmax)[rows].tolist()
        focus, channels = config.n_focus, config.focus_channels
        self.adam_scale = parameter(focus, config.lmax + 1, channels)
        self.bias0 = parameter(focus, channels)
        self.balance_weight = nn.Buffer(torch.empty(len(rows), device="meta"))

    def forward(self, orders: list[Tensor]) -> list[Tensor]:
        x = balanced_normalize(
            torch.cat(orders, dim=2),
            self.balance_weight,
            self._EPS,
            self.adam_scale[:, None, self.degrees],
            self.bias0[:, None, None, :],
        )
        return list(x.split(self.sizes, dim=2))


class ChannelRadialMixer(nn.Module):
    """Radial mixer with a full kernel for each channel (rank 0)."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.n_degrees = [config.lmax - m + 1 for m in range(config.mmax + 1)]
        self.channels = config.hidden_channels
        n_in = (config.lmax + 1) * self.channels
        n_kernel = sum(n * n for n in self.n_degrees)
        self.weight = parameter(n_in, n_kernel * self.channels)

    def forward(
        self, source: Tensor, rotation: list[Tensor], radial: Tensor
    ) -> list[Tensor]:
        """As ``RadialMixer.forward``."""
        kernels = (radial.flatten(1) @ self.weight).unflatten(1, (-1, self.channels))
        parts = kernels.split([n * n for n in self.n_degrees], dim=1)
        mixed = []
        for n, kernel, rows in zip(self.n_degrees, parts, rotation, strict=True):
            local = (rows @ source).unflatten(1, (-1, n))  # (E, signs, in, H)
            matrix = kernel.unflatten(1, (n, n))  # (E, in, out, H)
            mixed.append(torch.einsum("esic,eioc->esoc", local, matrix).flatten(1, 2))
        return mixed


class NodeWiseProduct(nn.Module):
    """Grid product of an edge's source with its destination, both in the edge frame."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        rows = frame_rows(config)
        layout = GridLayout(
            config.node_wise, config.lmax, config.frame_kmax, rows, config.mmax
        )
        inner = CrossProduct(
            layout, config.n_focus, config.focus_channels, config.mlp_bias
        )
        self.inner, self.n_focus = inner, config.n_focus

    def forward(
        self, orders: list[Tensor], destination: Tensor, rotation: list[Tensor]
    ) -> list[Tensor]:
        """Add the product.

        Args:
            orders: per order (F, E, n or 2 n, C) of the source, already modulated.
            destination: node features at the destination of each edge, (E, D, H).
            rotation: per order (E, n or 2 n, D).
        """
        destination = torch.cat(rotation, dim=1) @ destination
        destination = destination.unflatten(-1, (self.n_focus, -1)).movedim(-2, 0)
        update = self.inner(torch.cat(orders, dim=2), destination)
        parts = update.split([x.shape[2] for x in orders], dim=2)
        return [x + y for x, y in zip(orders, parts, strict=True)]
