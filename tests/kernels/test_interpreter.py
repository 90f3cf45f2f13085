"""Runs tests of kernels on the CPU, in Triton's interpreter."""

from pathlib import Path

from .interpreter import check_in_interpreter

FILES = (
    "test_products.py",
    "test_runs.py",
    "test_degree_linear.py",
    "test_edge_frames.py",
    "test_radial.py",
    "test_norms.py",
)


def test_kernels_in_the_interpreter():
    check_in_interpreter(*(Path(__file__).with_name(name) for name in FILES))
