"""How the message of an edge is formed from its source atom.

A path turns node features into a list of row groups (F, E, n, C) in a frame of its own,
and takes weighted rows back to the global frame. The edge-frame path is the one of all
released models.
"""

import numpy as np
import torch
from torch import Tensor, nn

from .config import DescriptorConfig
from .layout import degree_of_row
from .linear import constant, expand_degrees
from .so2 import MixingStack, RadialMixer
from .so2_options import (
    ChannelRadialMixer,
    NodeWiseProduct,
    OptionalMixingStack,
    needs_options,
)
from .view import DPA4EdgeView

__all__ = ["DirectPath", "FramePath", "GlobalPath", "by_focus", "join_rows"]


def by_focus(x: Tensor, n_focus: int) -> Tensor:
    """Split the focus streams off the channels, (..., F C) -> (F, ..., C), contiguous."""
    return x.unflatten(-1, (n_focus, -1)).movedim(-2, 0).contiguous()


def join_rows(orders: list[Tensor]) -> Tensor:
    """Join row groups and focus streams, (F, E, n, C) each -> (E, rows, F C)."""
    return torch.cat(orders, dim=2).movedim(0, 2).flatten(2)


class FramePath(nn.Module):
    """Rotate into the frame of the edge, weight radially, mix, rotate back."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.n_focus = config.n_focus
        self.mixer = _radial_mixer(config)
        self.node_wise = NodeWiseProduct(config) if config.node_wise else None
        self.reads_destination = config.node_wise is not None
        self.stack = (
            OptionalMixingStack(config) if needs_options(config) else MixingStack(config)
        )
        # Orders above mmax are lost in the edge frame; this keeps the norm per degree.
        l, mmax = degree_of_row(config.lmax), config.mmax
        gain = np.where(l > mmax, (2 * l + 1) / (2 * mmax + 1), 1)
        self.back_scale = constant(np.sqrt(gain)[:, None])

    def forward(
        self,
        view: DPA4EdgeView,
        rotation: list[Tensor],
        radial: Tensor,
        source: Tensor,
        destination: Tensor | None,
    ) -> tuple[list[Tensor], Tensor]:
        """Form the messages.

        Args:
            view: the edges.
            rotation: per order (E, n or 2 n, D).
            radial: radial features at hidden width, (E, L + 1, H).
            source: node features at the source of each edge, (E, D, H).
            destination: the same at the destination, where ``reads_destination``.

        Returns:
            Rows per order (F, E, n or 2 n, C); the scalar row before mixing (F, E, C).
        """
        orders = self.mixer(source, rotation, radial)
        orders = [by_focus(x, self.n_focus) for x in orders]
        if self.node_wise is not None:
            orders = self.node_wise(orders, destination, rotation)
        scalars = orders[0][:, :, 0]
        scale = radial[:, 0] * view.envelope[:, None]
        return self.stack(orders, by_focus(scale, self.n_focus)), scalars

    def back(self, orders: list[Tensor], rotation: list[Tensor]) -> Tensor:
        """Rows of the edge frame -> packed rows of the global frame, (E, D, H).

        The factor ``back_scale`` of the packed rows is left to the sum over edges.
        """
        return torch.cat(rotation, dim=1).mT @ join_rows(orders)

    def sum_back(self, layout, orders: list[Tensor], rotation: list[Tensor]) -> Tensor:
        """Sum of ``back`` over the edges of each destination, (N, D, H)."""
        return layout.sum_products_at_dst(torch.cat(rotation, dim=1), join_rows(orders))


class GlobalPath(nn.Module):
    """What the paths have in common that never leave the global frame."""

    back_scale = 1.0
    reads_destination = False

    def back(self, orders: list[Tensor], rotation: list[Tensor]) -> Tensor:
        """Join the focus streams, -> (E, D, H)."""
        return join_rows(orders)

    def sum_back(self, layout, orders: list[Tensor], rotation: list[Tensor]) -> Tensor:
        """Sum of ``back`` over the edges of each destination, (N, D, H)."""
        return layout.sum_at_dst(join_rows(orders))


class DirectPath(GlobalPath):
    """Source features times radial features: a convolution without mixing."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.n_focus, self.lmax = config.n_focus, config.lmax

    def forward(self, view, rotation, radial, source, destination):
        """As ``FramePath.forward``, with all packed rows in one group."""
        rows = expand_degrees(radial.movedim(1, 0), self.lmax).movedim(0, 1)
        message = by_focus(source * rows, self.n_focus)
        return [message], message[:, :, 0]


class RadialProduct(nn.Module):
    """Rotated source features times the radial features of their degree."""

    def forward(
        self, source: Tensor, rotation: list[Tensor], radial: Tensor
    ) -> list[Tensor]:
        """As ``RadialMixer.forward``."""
        local = torch.cat(rotation, dim=1) @ source
        orders = local.split([rows.shape[1] for rows in rotation], dim=1)
        result = []
        for m, x in enumerate(orders):
            of_degree = radial[:, None, m:]
            signs = x.unflatten(1, (-1, of_degree.shape[2]))
            result.append((signs * of_degree).flatten(1, 2))
        return result


def _radial_mixer(config: DescriptorConfig) -> nn.Module:
    if config.radial_so2_mode == "none":
        return RadialProduct()
    if config.radial_so2_mode == "degree_channel" and config.radial_so2_rank == 0:
        return ChannelRadialMixer(config)
    return RadialMixer(config)
