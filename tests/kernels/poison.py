"""Memory full of NaN: what is read before it is written shows in a result."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def poisoned_new_tensors() -> Iterator[None]:
    """Every new tensor holds NaN until it is filled."""
    was = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # this is what fills them
    try:
        assert torch.empty(3).isnan().all()
        assert torch.ones(1).new_empty(3).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(was)


def surrounded(tensor: Tensor) -> Tensor:
    """A contiguous copy with NaN before and after it in memory."""
    buffer = tensor.new_full((tensor.numel() + 256,), math.nan)
    buffer[128:-128] = tensor.reshape(-1)
    return buffer[128:-128].view(tensor.shape)
