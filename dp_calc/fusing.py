"""Whether a model's edges run on Triton kernels, and that model."""

import logging
import re
import warnings
from importlib.util import find_spec

import torch
from torch import nn

from .kernels.devices import is_old_gpu
from .kernels.launch import compiled_ahead
from .models.classic.compress import is_compressed
from .models.dpa4.fusible import why_not_fused
from .settings import Settings

__all__ = ["why_no_kernels", "with_fused_edges"]

_log = logging.getLogger(__name__)

_PRODUCTS = {"exact": "bf16x6", "fast": "fp16x3", "tf32": "tf32"}
"""Products of each precision; examples/docs/numbers.md has their errors."""

_LARGEST_ERROR = {"exact": 1e-5, "fast": 1e-5, "tf32": 2e-2}
"""Relative to the largest entry; a hundred times what rounding does."""


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
        fused = fuse(model, KernelOptions(_PRODUCTS[settings.precision], cohort))
        why = _why_not_trusted(fused, settings.precision)
        if why is None:
            return fused
        if settings.kernels == "auto":
            warnings.warn(f"{why}; PyTorch runs in their place", stacklevel=2)
    wanted = _asked_for(model, settings)
    if wanted is None:
        return model
    where = f"{settings.origins[wanted]}: " if wanted in settings.origins else ""
    value = getattr(settings, wanted)
    raise ValueError(f'{where}{wanted}="{value}" cannot be had: {why}; leave it out')


def _why_not_trusted(fused: nn.Module, precision: str) -> str | None:
    """Why the kernels may not be used on this device, or None: one block is tried."""
    if fused.device.type != "cuda":
        return None
    _log.info("trying the kernels; compiling them the first time takes some seconds")
    tried = fused.descriptor.blocks[0].so2_conv.fused
    try:
        with compiled_ahead():
            tried.largest_error()
        error = tried.largest_error()
    except Exception as failure:  # Triton raises whatever its compilers raise
        return f"the Triton kernels cannot be compiled here ({_what_failed(failure)})"
    if error <= _LARGEST_ERROR[precision]:
        return None
    name = torch.cuda.get_device_name(fused.device)
    return f"the Triton kernels are off by {error:.1g} on this device, {name}"


def _what_failed(failure: BaseException) -> str:
    """The line of a message that says what is wrong."""
    while failure.__cause__ is not None:  # Triton raises one error per function called
        failure = failure.__cause__
    lines = [x.strip() for x in str(failure).splitlines() if re.search(r"\w", x)]
    if not lines:
        return type(failure).__name__
    # Triton's compiler begins with a place in the source and ends with what is wrong.
    return lines[-1] if re.fullmatch(r"at \d+:\d+:", lines[0]) else lines[0]


def _asked_for(model: nn.Module, settings: Settings) -> str | None:
    """The setting that only the kernels can honour, or None."""
    if settings.backward == "cohort":
        return "backward"
    if settings.precision == "fast":
        return "precision"
    # The tables of a compressed model have kernels of their own.
    if settings.kernels == "triton" and not is_compressed(model):
        return "kernels"
    return None


def why_no_kernels(model: nn.Module, settings: Settings) -> str | None:
    """Reason for which the edges do not run on kernels, or None."""
    if settings.kernels == "torch":
        return 'kernels="torch" was asked for'
    if find_spec("triton") is None:
        return "the package triton is not installed"
    if model.device.type == "cuda":
        if is_old_gpu(model.device):
            return "the GPU's compute capability is below 8.0"
    elif settings.kernels != "triton" or not _is_interpreted():
        return f"the kernels need a CUDA device, and the model is on {model.device}"
    return why_not_fused(model)


def _is_interpreted() -> bool:
    from .kernels.products import INTERPRETED

    return INTERPRETED
