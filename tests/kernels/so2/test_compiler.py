"""The kernels of the SO(2) path get through Triton's compiler, which takes no GPU.

The interpreter runs Python, of which the compiler knows a part only, and has memory
without end.
"""

import pytest
from dp_calc.kernels.so2 import Layout, mix

from ..compiler import kernels_compiled_only
from .problems import (
    TILE,
    mix_problem,
    random_weights,
    rotate_in_problem,
    tile_sum_problem,
)

SHARED_MEMORY = 227 * 1024
"""Bytes that a program can have on an H200."""

EVEN, ODD = Layout(1, 1, 16), Layout(2, 1, 16)  # rows of order 0: in pairs, or each alone


def check(run, n_kernels):
    """Results are never written and not looked at."""
    with kernels_compiled_only() as compiled:
        run()
    assert len({name for name, _ in compiled}) == n_kernels
    assert max(size for _, size in compiled) <= SHARED_MEMORY


@pytest.mark.parametrize(
    ("layout", "precision"), [(ODD, "ieee"), (EVEN, "bf16x6")], ids=str
)
def test_layers(layout, precision):
    check(mix_problem(layout, 2 * TILE, precision).results, n_kernels=2)


def test_the_last_layer_of_the_widest_released_model():
    weights, _ = random_weights(Layout(4, 1, 64), "bf16x6", n_layers=1)
    (rows,) = mix_problem(weights.layout, 2 * TILE).inputs
    check(lambda: mix(rows, weights, 0), n_kernels=1)


@pytest.mark.parametrize("problem", [rotate_in_problem, tile_sum_problem])
def test_rotations_and_sums(problem):
    check(problem(ODD, 2 * TILE).results, n_kernels=2)
