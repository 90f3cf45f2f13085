"""Runs the tests of the kernels on the CPU, in Triton's interpreter."""

from pathlib import Path

import pytest

from ..interpreter import check_in_interpreter


@pytest.mark.parametrize("name", ["test_triton.py", "test_refusals.py", "test_memory.py"])
def test_kernels_in_the_interpreter(name):
    check_in_interpreter(Path(__file__).with_name(name))
