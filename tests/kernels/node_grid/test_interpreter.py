"""Runs the tests of the Triton path on the CPU, in Triton's interpreter."""

from pathlib import Path

from ..interpreter import check_in_interpreter


def test_triton_path_in_the_interpreter():
    check_in_interpreter(Path(__file__).with_name("test_triton.py"))
