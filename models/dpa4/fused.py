"""Messages on the kernels of ``kernels/so2``: what runs the edges of a block faster."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...kernels.so2 import (
    KernelOptions,
    Layout,
    StackWeights,
    largest_error,
    mix,
    rotate_in,
    stack_weights,
    tile_sum,
)
from ..cohorts import TILE
from .config import DescriptorConfig
from .convolution import SO2Convolution
from .fused_grid import fuse_grids
from .fused_linear import FusedLinear, fuse_linears
from .model import DPA4Model
from .so2 import MixingStack, RadialMixer
from .view import DPA4EdgeView

__all__ = ["fuse"]


def fuse(model: DPA4Model, options: KernelOptions) -> DPA4Model:
    """A model that shares the weights of another and runs its edges on the kernels.

    It takes edges in tiles, from the executors of ``stream.py``, and gives first
    derivatives only.

    Args:
        model: one that ``fusible.why_not_fused`` has nothing against.
        options: how the kernels run.
    """
    tensors = [*model.parameters(), *model.buffers()]
    fused = copy.deepcopy(model, {id(x): x for x in tensors})
    fused.kernel_options = options
    for i, block in enumerate(fused.descriptor.blocks):
        config = fused.config.descriptor.for_block(i)
        block.so2_conv.fused = FusedMessages(block.so2_conv, config, options)
    fuse_grids(fused, options.precision)
    fuse_linears(fused, options.precision)
    return fused


class FusedMessages(nn.Module):
    """``SO2Convolution.edge_sum`` on kernels.

    Args:
        conv: the convolution; its weights are shared.
        config: options of its block.
        options: how the kernels run.
    """

    def __init__(
        self, conv: SO2Convolution, config: DescriptorConfig, options: KernelOptions
    ):
        super().__init__()
        self.degrees = conv.degrees
        self.layout = Layout(config.lmax, config.n_focus, config.focus_channels)
        self.options = options
        self._conv = (conv,)  # in a tuple, so that it is no child of its child
        self.mixer = conv.path.mixer
        self._take_radial(conv)
        weights = _stack_weights(conv.path.stack, self.layout, options.precision)
        for name, tensor in zip(StackWeights.NAMES, weights.tensors, strict=True):
            self.register_buffer(name, tensor, persistent=False)

    def largest_error(self) -> float:
        """Of the kernels on this device, see ``kernels.so2.largest_error``."""
        matrices = _matrices(self._conv[0].path.stack, self.layout)
        return largest_error(self.weights, *matrices)

    @property
    def weights(self) -> StackWeights:
        """Matrices of the stack."""
        matrices = (getattr(self, name) for name in StackWeights.NAMES)
        return StackWeights(self.layout, self.options.precision, *matrices)

    def _take_radial(self, conv: SO2Convolution) -> None:
        """One matrix from radial features to degree kernels, through the hidden width."""
        if not isinstance(self.mixer, RadialMixer):
            return
        weight = self.mixer.weight.detach()
        if not isinstance(conv.radial_hidden_proj, nn.Identity):
            by_degree = weight.unflatten(0, (self.layout.lmax + 1, -1))
            projection = conv.radial_hidden_proj.weight.detach()
            weight = (projection @ by_degree).flatten(0, 1)
        missing = -weight.shape[1] % 16
        padded = F.pad(weight, (0, missing))
        self.to_kernels = FusedLinear(padded, None, self.options.precision)
        self.n_kernel = weight.shape[1]

    def edge_sum(
        self, view: DPA4EdgeView, src: Sequence[Tensor], dst: Sequence[Tensor]
    ) -> tuple[Tensor]:
        """See ``SO2Convolution.edge_sum``; the edges come in tiles."""
        conv, layout = self._conv[0], view.layout
        radial = view.radial[:, : self.layout.lmax + 1]
        radial = radial + (src[0] + dst[0])[:, None]
        rotation = view.rotation(*self.degrees)
        rows, scalars = self._local_rows(radial, rotation, src[1])
        hidden = conv.radial_hidden_proj(radial[:, 0])
        weight = self._weight(view, hidden, scalars, src, dst) * layout.real[:, None]
        rows = mix(rows, self.weights, self.options.cohort_edges)
        sums = tile_sum(torch.cat(rotation, dim=1), rows, weight, TILE)
        return (layout.add_tiles(sums),)

    def _local_rows(
        self, radial: Tensor, rotation: list[Tensor], source: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rows in the edge frame before the stack (E, R, H), and the first (E, H)."""
        channels = self.layout.channels
        if not isinstance(self.mixer, RadialMixer):
            rows, _ = rotate_in(torch.cat(rotation, dim=1), source, None, channels)
            rows = rows * self._by_row(self._conv[0].radial_hidden_proj(radial))
            return rows, rows[:, 0]
        kernels = self.to_kernels(radial.flatten(1))[:, : self.n_kernel]
        matrices = self.mixer.mix(rotation, kernels)
        scales = self.mixer.channel_basis if self.mixer.with_channels else [None]
        parts = [
            rotate_in(matrix, source, scale, channels)
            for matrix, scale in zip(matrices.unbind(2), scales, strict=True)
        ]
        rows, scalars = parts[0]
        for more, more_scalars in parts[1:]:
            rows, scalars = rows + more, scalars + more_scalars
        return rows, scalars

    @staticmethod
    def _by_row(radial: Tensor) -> Tensor:
        """Per degree (E, L + 1, H) -> per row in the edge frame (E, R, H)."""
        return torch.cat([radial, radial[:, 1:], radial[:, 1:]], dim=1)

    def _weight(
        self, view: DPA4EdgeView, hidden: Tensor, scalars: Tensor, src, dst
    ) -> Tensor:
        """Weight of each edge's message, per stream and head, (E, K)."""
        conv, n_focus = self._conv[0], self.layout.n_focus
        if conv.attention is None:
            weight = view.gated(view.geometry.envelope)[:, None].expand(-1, n_focus)
        else:
            weight = conv.attention.per_head(view, hidden, query=dst[1], key=src[2])
        if conv.competition is None:
            return weight
        streams = scalars.unflatten(1, (n_focus, -1)).movedim(1, 0)
        share = conv.competition(streams).T
        return weight * share.repeat_interleave(weight.shape[1] // n_focus, dim=1)


def _stack_weights(stack: MixingStack, layout: Layout, precision: str) -> StackWeights:
    return stack_weights(layout, precision, *_matrices(stack, layout))


def _matrices(stack: MixingStack, layout: Layout) -> tuple[list[Tensor], ...]:
    """Per layer the maps of order 0 and of orders -1 and +1, and those to the gates."""
    maps = [linear.matrices() for linear in stack.so2_linears]
    order_0, order_1 = zip(*maps, strict=True)
    gates = [
        act.gate_linear.weight.unflatten(1, (layout.n_focus, -1)).transpose(0, 1)
        for act in stack.non_linearities
    ]
    return list(order_0), list(order_1), gates
