import pytest

from ..interpreter import interpreted


@pytest.fixture
def plain():
    """No interpreter: kernels on the CPU are to be refused."""
    if interpreted():
        pytest.skip("needs TRITON_INTERPRET unset")
