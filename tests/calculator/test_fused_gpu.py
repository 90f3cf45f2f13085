"""DPA4 on Triton kernels on a CUDA device, against plain PyTorch in float64."""

import numpy as np
import pytest
import torch
from ase.build import bulk, molecule

from dp_calc import DP
from dp_calc.data import water_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def water():
    atoms = molecule("H2O", cell=[3.1] * 3, pbc=True) * (3, 3, 3)
    atoms.rattle(0.05, seed=4)
    return atoms


def results(atoms, **settings):
    calc = DP(water_model(), device="cuda", compile=False, **settings)
    calc.calculate(atoms)
    return calc.results


@pytest.fixture(scope="module")
def exact():
    return results(water(), kernels="torch", dtype="float64")


@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("backward", ["native", "cohort", "stream"])
def test_kernels_against_float64(exact, backward, precision):
    atoms = water()
    settings = {"kernels": "triton", "backward": backward, "precision": precision}
    found = results(atoms, cohort_edges=4096, **settings)
    assert found["energy"] == pytest.approx(exact["energy"], abs=3e-6 * len(atoms))
    largest = np.abs(exact["forces"]).max()
    np.testing.assert_allclose(found["forces"], exact["forces"], atol=1.2e-5 * largest)
    np.testing.assert_allclose(found["stress"], exact["stress"], rtol=1e-4, atol=1e-6)


def test_native_and_cohort_have_the_same_bits():
    native, cohort = (
        results(water(), kernels="triton", backward=backward, cohort_edges=1024)
        for backward in ("native", "cohort")
    )
    for name in ("energy", "forces", "stress"):
        np.testing.assert_array_equal(native[name], cohort[name])


def test_repeats_have_the_same_bits_with_other_structures_between():
    calc = DP(water_model(), device="cuda", compile=False, kernels="triton")
    atoms, other = water(), bulk("O", "sc", a=2.4) * (2, 2, 2)
    first = None
    for _ in range(10):
        calc.calculate(other)
        calc.calculate(atoms)
        forces = calc.results["forces"].copy()
        first = forces if first is None else first
        np.testing.assert_array_equal(forces, first)


def test_auto_takes_the_kernels():
    calc = DP(water_model(), device="cuda", compile=False)
    assert "Triton kernels for the edges" in calc.settings.describe(calc.model)
    assert calc._engine._fused is not calc.model
