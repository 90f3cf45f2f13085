"""Runs the tests of a calculator on kernels on the CPU, in Triton's interpreter."""

from pathlib import Path

from ..kernels.interpreter import check_in_interpreter


def test_calculator_on_kernels_in_the_interpreter():
    check_in_interpreter(Path(__file__).with_name("test_kernels_triton.py"))
