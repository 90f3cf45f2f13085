"""Runs the tests of models on kernels on the CPU, in Triton's interpreter."""

from pathlib import Path

from ..kernels.interpreter import check_in_interpreter


def test_fused_models_in_the_interpreter():
    check_in_interpreter(Path(__file__).with_name("test_fused.py"))
