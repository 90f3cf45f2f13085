"""Messages on Triton kernels: what runs the edges of a block faster."""

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
from .fused_geometry import FusedFrames, FusedRadial, PlainRadial
from .fused_grid import fuse_grids
from .fused_linear import fuse_linears
from .fused_nodes import fuse_nodes
from .fused_view import fuse_view, projected_radial
from .fused_weights import FusedWeights
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
    descriptor = fused.descriptor
    fuse_view(descriptor)
    for i, block in enumerate(descriptor.blocks):
        config = descriptor.config.for_block(i)
        messages = FusedMessages(block.so2_conv, config, options)
        messages.radial = projected_radial(descriptor, messages.projection)
        block.so2_conv.fused = messages
    fuse_grids(fused, options.precision)
    fuse_linears(fused, options.precision)
    fuse_nodes(fused)
    return fused


class FusedMessages(nn.Module):
    """``SO2Convolution.at_edges`` and ``.edge_sum`` on kernels.

    Args:
        conv: the convolution; its weights are shared.
        config: options of its block.
        options: how the kernels run.

    Attributes:
        radial: gives the edges' part of the factors and of the attention's bias.
        projection: from radial features to these, ((L + 1) C, n), float64.
    """

    radial: FusedRadial | PlainRadial

    def __init__(
        self, conv: SO2Convolution, config: DescriptorConfig, options: KernelOptions
    ):
        super().__init__()
        self.layout = Layout(config.lmax, config.n_focus, config.focus_channels)
        self.options = options
        self._conv = (conv,)  # in a tuple, so that it is no child of its child
        weights = _stack_weights(conv.path.stack, self.layout, options.precision)
        for name, tensor in zip(StackWeights.NAMES, weights.tensors, strict=True):
            self.register_buffer(name, tensor, persistent=False)
        self.frames = FusedFrames(config.lmax, config.eps, weights.order_0.device)
        mixer = conv.path.mixer
        self.mixer = mixer if isinstance(mixer, RadialMixer) else None
        self._project(conv)

    def largest_error(self) -> float:
        """Of the kernels on this device, see ``kernels.so2.largest_error``."""
        matrices = _matrices(self._conv[0].path.stack, self.layout)
        return largest_error(self.weights, *matrices)

    @property
    def weights(self) -> StackWeights:
        """Matrices of the stack."""
        matrices = (getattr(self, name) for name in StackWeights.NAMES)
        return StackWeights(self.layout, self.options.precision, *matrices)

    def _project(self, conv: SO2Convolution) -> None:
        """One matrix from radial features to factors and bias, through the hidden width.

        What a pair of atoms adds to every degree of the features takes the same way.
        """
        parts = [_to_factors(conv, self.mixer, self.layout)]
        if conv.attention is not None:
            parts.append(_to_bias(conv, self.layout.lmax))
        self.weights_of_edges = FusedWeights(conv, first_bias=parts[0].shape[2])
        projection = torch.cat(parts, dim=2)
        projection = F.pad(projection, (0, -projection.shape[2] % 16))
        self.projection = projection.flatten(0, 1)
        pair = projection.sum(0).float()
        self.register_buffer("of_pair", pair, persistent=False)

    def at_edges(
        self, scalars: Tensor, nodes: Tensor, *query_key: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """See ``SO2Convolution.at_edges``; the scalars come projected."""
        return self._conv[0].at_edges(scalars @ self.of_pair, nodes, *query_key)

    def edge_sum(
        self, view: DPA4EdgeView, src: Sequence[Tensor], dst: Sequence[Tensor]
    ) -> tuple[Tensor]:
        """See ``SO2Convolution.edge_sum``; the edges come in tiles."""
        layout, channels = view.layout, self.layout.channels
        frames = self.frames(view)
        features, envelope = self.radial(view)
        features = features + src[0] + layout.at_dst(dst[0])
        scale = None if self.mixer is None else self.mixer.scale
        rank = 0 if self.mixer is None else self.mixer.rank
        rows, scalars = rotate_in(frames, features, src[1], scale, rank, channels)
        weight = self.weights_of_edges(view, features, envelope, scalars, src, dst)
        rows = mix(rows, self.weights, self.options.cohort_edges)
        return (layout.add_tiles(tile_sum(frames, rows, weight, TILE)),)


def _to_factors(
    conv: SO2Convolution, mixer: RadialMixer | None, layout: Layout
) -> Tensor:
    """From radial features to the factors of ``rotate_in``, (L + 1, C, n), float64."""
    hidden = _to_hidden(conv)
    n_degrees = layout.lmax + 1
    if mixer is not None:
        return hidden @ mixer.weight.detach().double().unflatten(0, (n_degrees, -1))
    alike = torch.eye(n_degrees, dtype=hidden.dtype, device=hidden.device)
    return torch.einsum("lk,ch->lckh", alike, hidden).flatten(2)


def _to_bias(conv: SO2Convolution, lmax: int) -> Tensor:
    """From radial features to the attention's bias, which is made of degree 0."""
    weight = conv.attention.adamw_attn_logit_w.detach().double()  # (C, F, heads)
    of_streams = torch.block_diag(*weight.unbind(1))  # (H, F heads)
    of_scalars = _to_hidden(conv) @ of_streams
    return F.pad(of_scalars[None], (0, 0, 0, 0, 0, lmax))


def _to_hidden(conv: SO2Convolution) -> Tensor:
    """From the channels of the radial features to the hidden ones, (C, H), float64."""
    if isinstance(conv.radial_hidden_proj, nn.Identity):
        weight = conv.pre_focus_mix.weight
        return torch.eye(weight.shape[1], dtype=torch.float64, device=weight.device)
    return conv.radial_hidden_proj.weight.detach().double()


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
