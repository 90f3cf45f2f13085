"""Whether a model's edges run on Triton kernels, and that model."""

from importlib.util import find_spec

import torch
from torch import nn

from .models.classic.compress import is_compressed
from .models.dpa4.fusible import why_not_fused
from .settings import Settings

__all__ = ["why_no_kernels", "with_fused_edges"]

_PRODUCTS = {"exact": "bf16x6", "fast": "fp16x3", "tf32": "tf32"}
"""Products of each precision; errors against float64 are in the README of kernels."""

_OLDEST_GPU = (8, 0)  # compute capability that Triton supports


def with_fused_edges(model: nn.Module, settings: Settings) -> nn.Module:
    """The model on kernels where settings and model allow it, else the model itself.

    Raises:
        ValueError: kernels are asked for and cannot be had; the message says why.
    """
    why = why_no_kernels(model, settings)
    if why is None:
        from .kernels.so2 import KernelOptions
        from .models.dpa4.fused import fuse

        cohort = settings.cohort_edges if settings.backward == "cohort" else 0
        return fuse(model, KernelOptions(_PRODUCTS[settings.precision], cohort))
    wanted = _asked_for(model, settings)
    if wanted is not None:
        raise ValueError(f"{wanted} cannot be had: {why}; leave it out")
    return model


def _asked_for(model: nn.Module, settings: Settings) -> str | None:
    """The setting that only the kernels can honour, or None."""
    if settings.backward == "cohort":
        return 'backward="cohort"'
    if settings.precision == "fast":
        return 'precision="fast"'
    # The tables of a compressed model have kernels of their own.
    if settings.kernels == "triton" and not is_compressed(model):
        return 'kernels="triton"'
    return None


def why_no_kernels(model: nn.Module, settings: Settings) -> str | None:
    """Reason for which the edges do not run on kernels, or None."""
    if settings.kernels == "torch":
        return 'kernels="torch" was asked for'
    if find_spec("triton") is None:
        return "the package triton is not installed"
    if model.device.type == "cuda":
        if torch.cuda.get_device_capability(model.device) < _OLDEST_GPU:
            return "the GPU's compute capability is below 8.0"
    elif settings.kernels != "triton" or not _is_interpreted():
        return f"the kernels need a CUDA device, and the model is on {model.device}"
    return why_not_fused(model)


def _is_interpreted() -> bool:
    from .kernels.products import INTERPRETED

    return INTERPRETED
