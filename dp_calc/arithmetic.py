"""Modes of PyTorch that would change numbers, shut out while a model is run."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .placement import ordinary_tensors

__all__ = ["plain_arithmetic", "rounded_products"]


@contextmanager
def plain_arithmetic(device: torch.device) -> Iterator[None]:
    """Shut out modes of the caller that would change numbers or forbid derivatives."""
    with (
        torch.autocast(device.type, enabled=False),
        ordinary_tensors(),
        rounded_products(device, "ieee"),
    ):
        yield


@contextmanager
def rounded_products(device: torch.device, precision: str) -> Iterator[None]:
    """Set how float32 matrix products are rounded, ``"ieee"`` or ``"tf32"``.

    PyTorch has one such mode for the process. It is set only if it differs, and reset.
    """
    backend = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    before = backend.matmul.fp32_precision
    # Older names of PyTorch for what is exact on a CPU.
    if before == precision or (precision == "ieee" and before == "none"):
        yield
        return
    backend.matmul.fp32_precision = precision
    try:
        yield
    finally:
        backend.matmul.fp32_precision = before
