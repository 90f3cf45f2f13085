"""The compiled kernels of the SO(2) path on a CUDA device."""

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from dp_calc.kernels.products import INTERPRETED, PRECISIONS
from dp_calc.kernels.so2 import Layout, mix

from .problems import (
    deviation,
    mix_problem,
    random_weights,
    rotate_in_problem,
    tile_sum_problem,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(INTERPRETED, reason="needs TRITON_INTERPRET unset"),
]

NEO = Layout(lmax=3, n_focus=2, channels=32)
SIZES = (0, 1, 37, 63, 64, 65, 8191, 8192, 8193, 16384, 16385)


@pytest.mark.parametrize("n_edges", SIZES)
def test_stack_of_any_number_of_edges(n_edges):
    problem = mix_problem(NEO, n_edges, "bf16x6", n_layers=3, device="cuda")
    for found, right in zip(problem.results(), problem.expected(), strict=True):
        assert deviation(found, right) < 1e-6


@pytest.mark.parametrize("n_edges", [0, 16, 48, 8192, 16400])
def test_rotations_and_sums(n_edges):
    for make in (rotate_in_problem, tile_sum_problem):
        problem = make(NEO, n_edges, device="cuda")
        for found, right in zip(problem.results(), problem.expected(), strict=True):
            assert deviation(found, right) < 2e-6


def test_errors_of_each_precision():
    errors = {}
    for precision in PRECISIONS:
        problem = mix_problem(NEO, 4096, precision, n_layers=3, device="cuda")
        pairs = zip(problem.results(), problem.expected(), strict=True)
        errors[precision] = max(deviation(*pair) for pair in pairs)
    for precision in ("tf32x3", "bf16x6", "fp16x3"):
        assert errors[precision] < 2 * errors["ieee"], errors
    assert errors["tf32"] > 1e-4, errors  # or TF32 was not what ran


@pytest.mark.parametrize("precision", ["bf16x6", "fp16x3"])
def test_ten_repeats_have_the_same_bits(precision):
    problem = mix_problem(NEO, 8193, precision, n_layers=3, device="cuda")
    first = problem.results()
    for _ in range(10):
        for one, other in zip(problem.results(), first, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("cohort", [64, 4096, 8192])
def test_cohorts_have_the_same_bits(cohort):
    native = mix_problem(NEO, 16385, "bf16x6", n_layers=3, device="cuda")
    cohorts = mix_problem(NEO, 16385, "bf16x6", cohort, n_layers=3, device="cuda")
    for one, other in zip(native.results(), cohorts.results(), strict=True):
        assert torch.equal(one, other)


def test_offsets_beyond_32_bits():
    weights, _ = random_weights(NEO, "fp16x3", 3, "cuda")
    n_edges = 2**31 // (NEO.n_rows * NEO.width) + 100
    rows = torch.zeros(n_edges, NEO.n_rows, NEO.width, device="cuda")
    last = torch.randn(64, NEO.n_rows, NEO.width, device="cuda")
    rows[-64:] = last
    expected = mix(last.contiguous(), weights, 0)
    assert torch.equal(mix(rows, weights, 0)[-64:], expected)
