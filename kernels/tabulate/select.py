"""Which implementation of the tabulated operators runs."""

from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

from ..derivatives import has_tangent
from ..devices import is_old_gpu
from . import reference

if find_spec("triton"):
    from . import fused
    from .ops import INTERPRETED
else:
    fused = None

__all__ = ["choose"]

_CHOICES = ("auto", "torch", "triton")


def choose(kernels: str, table: Tensor, *inputs: Tensor) -> ModuleType:
    """Pick the module whose ``contract`` and ``evaluate`` run.

    ``"auto"`` takes the Triton kernels on a CUDA device, unless something is asked that
    only plain PyTorch gives: a gradient of the table, or derivatives in forward mode.

    Raises:
        ValueError: an unknown choice, or ``"triton"`` where it cannot run.
    """
    if kernels not in _CHOICES:
        raise ValueError(f'kernels must be "auto", "torch" or "triton", not {kernels!r}')
    if kernels == "torch" or (kernels == "auto" and not table.is_cuda):
        return reference
    obstacle = _obstacle(table, inputs)
    if obstacle is None:
        return fused
    if kernels == "triton":
        raise ValueError(f'kernels="triton" cannot be had: {obstacle}, or use "auto"')
    return reference


def _obstacle(table: Tensor, inputs: tuple[Tensor, ...]) -> str | None:
    """Why the Triton path cannot take these tensors, and what would help."""
    if fused is None:
        return "Triton is not installed; install the package triton"
    if table.requires_grad and torch.is_grad_enabled():
        return "the table asks for a gradient, which it does not give; detach the table"
    # An operator of torch.library would drop tangents without a word.
    if any(map(has_tangent, (table, *inputs))):
        return "it gives no derivatives in forward mode; differentiate backward"
    if table.is_cuda:
        if is_old_gpu(table.device):
            return "the GPU's compute capability is below 8.0; use a newer one"
    elif not INTERPRETED:
        return f"the tensors are on {table.device}; move them to a CUDA device"
    return None
