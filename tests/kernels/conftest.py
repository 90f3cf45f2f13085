import pytest
import torch


@pytest.fixture
def device():
    """Where the Triton kernels run: on a CUDA device, or interpreted on the CPU."""
    if _interpreted():
        return "cpu"
    if not torch.cuda.is_available():
        pytest.skip(
            "needs a CUDA device, or TRITON_INTERPRET=1 set before Python starts "
            "(a test_interpreter.py does that)"
        )
    return "cuda"


@pytest.fixture
def cuda():
    """A CUDA device and compiled kernels."""
    if not torch.cuda.is_available() or _interpreted():
        pytest.skip("needs a CUDA device, and TRITON_INTERPRET unset")
    return "cuda"


def _interpreted() -> bool:
    products = pytest.importorskip(
        "dp_calc.kernels.products", reason="needs the package triton"
    )
    return products.INTERPRETED
