"""Runs the tests of the kernels on the CPU, in Triton's interpreter."""

from pathlib import Path

import pytest

from ..interpreter import check_in_interpreter


@pytest.mark.parametrize(
    "names", [("test_triton.py",), ("test_refusals.py", "test_memory.py")], ids=str
)
def test_kernels_in_the_interpreter(names):
    check_in_interpreter(*map(Path(__file__).with_name, names))
