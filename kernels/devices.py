"""Devices on which Triton kernels run."""

import torch

__all__ = ["is_old_gpu"]

_OLDEST_GPU = (8, 0)  # compute capability that Triton supports


def is_old_gpu(device: torch.device) -> bool:
    """Whether a CUDA device is too old for Triton."""
    # torch.compile cannot trace the query; what it makes needs such a GPU anyway.
    if torch.compiler.is_compiling():
        return False
    return torch.cuda.get_device_capability(device) < _OLDEST_GPU
