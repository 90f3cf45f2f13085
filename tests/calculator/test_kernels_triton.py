"""A calculator on Triton kernels, on a CUDA device or in the interpreter."""

import numpy as np
import pytest
from ase.build import molecule
from widened import in_float32, widened

from dp_calc import DP

pytestmark = pytest.mark.gpu

PROPERTIES = ("energies", "forces")


@pytest.fixture
def models(device):
    """The same model in float64 and in float32."""
    exact = widened("plain", channels=16, n_blocks=1, lmax=1)
    return exact.to(device), in_float32(exact).to(device)


def evaluate(model, **settings):
    calc = DP(model, compile=False, **settings)
    water = molecule("H2O")
    water.calc = calc
    water.get_forces()
    return calc, [calc.results[name] for name in PROPERTIES]


def check(results, expected):
    for result, wanted in zip(results, expected, strict=True):
        assert np.abs(wanted).max() > 0.01
        np.testing.assert_allclose(
            result, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max()
        )


@pytest.mark.parametrize(
    ("backward", "precision"),
    [("native", "exact"), ("cohort", "exact"), ("stream", "exact"), ("native", "fast")],
)
def test_backwards_and_precisions(backward, precision, models):
    exact, single = models
    _, expected = evaluate(exact, kernels="torch")
    settings = {"backward": backward, "precision": precision, "cohort_edges": 16}
    calc, results = evaluate(single, kernels="triton", **settings)
    check(results, expected)
    assert calc._engine.backward.name == backward
    told = calc.settings.describe(calc.model)
    assert told.startswith("Triton kernels for the edges and PyTorch for the rest on ")
    assert 'as asked by kernels="triton"' in told
    assert ("three products in float16" in told) == (precision == "fast")


def test_float64_is_refused_and_left_to_pytorch_otherwise(models):
    exact, _ = models
    with pytest.raises(ValueError, match=r'^kernels="triton" .* they work in float32'):
        DP(exact, kernels="triton", compile=False)
    calc = DP(exact, compile=False)
    assert calc.settings.describe(calc.model).startswith("Plain PyTorch")


def test_hessian_and_descriptors_come_from_pytorch(models):
    exact, single = models
    water = molecule("H2O")
    calcs = DP(single, kernels="triton", compile=False), DP(exact, compile=False)
    hessians = [calc.get_hessian(water, progress=False) for calc in calcs]
    largest = np.abs(hessians[1]).max()
    assert largest > 0.01
    np.testing.assert_allclose(*hessians, rtol=0, atol=1e-4 * largest)
