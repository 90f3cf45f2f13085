"""Which models the kernels of ``kernels/so2`` can run."""

import torch
from torch import nn

from .config import DescriptorConfig
from .model import DPA4Model
from .so2_options import needs_options

__all__ = ["why_not_fused"]


def why_not_fused(model: nn.Module) -> str | None:
    """Reason for which the kernels cannot run a model, or None."""
    if not isinstance(model, DPA4Model):
        architecture = getattr(model, "architecture", "this kind of")
        return f"there are none for {architecture} models"
    if model.dtype != torch.float32:
        return "they work in float32"
    descriptor = model.config.descriptor
    if not descriptor.schedule:
        return "the model has no interaction blocks"
    if descriptor.depth_attention != "none":
        return "the model has attention over its blocks"
    blocks = (descriptor.for_block(i) for i in range(len(descriptor.schedule)))
    return next((why for why in map(_why_not_block, blocks) if why), None)


def _why_not_block(config: DescriptorConfig) -> str | None:
    heads = config.n_focus * max(config.n_atten_head, 1)
    width = config.hidden_channels // heads
    obstacles = {
        "the messages are not formed in the frames of the edges": not config.uses_frames,
        "orders up to 1 are needed in the frames of the edges": config.mmax != 1,
        "degrees above 4 are not covered": config.lmax > 4,
        "the options of the SO(2) layers are not covered": _has_options(config),
        "the radial kernels are not covered": config.radial_so2_mode == "degree_channel"
        and config.radial_so2_rank == 0,
        "the maps of the attention are not covered": config.atten_f_mix
        or config.atten_v_proj
        or config.atten_o_proj,
        "the activation is not silu": config.so2_activation != "silu",
        "the streams have another width than 16, 32, 64 or 128 channels": not (
            _is_width(config.focus_channels) and _is_width(width)
        ),
    }
    return next((why for why, applies in obstacles.items() if applies), None)


def _has_options(config: DescriptorConfig) -> bool:
    other = config.node_wise is not None or config.mixing_layers < 1
    return other or needs_options(config)


def _is_width(channels: int) -> bool:
    return channels in (16, 32, 64, 128)
