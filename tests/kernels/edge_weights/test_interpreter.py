"""Runs the tests of the kernels on the CPU, in Triton's interpreter."""

from pathlib import Path

from ..interpreter import check_in_interpreter


def test_kernels_in_the_interpreter():
    files = ("test_triton.py", "test_refusals.py")
    check_in_interpreter(*(Path(__file__).with_name(name) for name in files))
