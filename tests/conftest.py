"""Where the tests of kernels run."""

import pytest
import torch

from .kernels.interpreter import interpreted


@pytest.fixture
def device():
    """Where the Triton kernels run: on a CUDA device, or interpreted on the CPU."""
    if interpreted():
        return "cpu"
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1 set before Python starts")
    return "cuda"


@pytest.fixture
def cuda():
    """A CUDA device and compiled kernels."""
    if not torch.cuda.is_available() or interpreted():
        pytest.skip("needs a CUDA device, and TRITON_INTERPRET unset")
    return "cuda"
