"""A calculator on Triton kernels on a CUDA device, against plain PyTorch in float64."""

import numpy as np
import pytest
import torch
from ase.build import bulk, molecule
from ase.io import read
from widened import in_float32, widened

from dp_calc import DP
from dp_calc.data import water_model, water_structure
from dp_calc.placement import load_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

PROPERTIES = ("energy", "energies", "forces", "stress")


def _neo():
    exact = widened("neo_narrow", channels=32).cuda()
    crystal = bulk("Cu", cubic=True) * (2, 2, 2)
    crystal.rattle(0.1, seed=1)
    return exact, in_float32(exact), crystal


def _water():
    exact, single = (
        load_model(water_model(), device="cuda", dtype=dtype)
        for dtype in (torch.float64, torch.float32)
    )
    return exact, single, read(water_structure())


@pytest.fixture(scope="module", params=[_neo, _water], ids=["neo", "water"])
def case(request):
    """A model in float32, a structure, and float64 results without kernels."""
    exact, single, atoms = request.param()
    return single, atoms, evaluate(exact, atoms, kernels="torch")[1]


def evaluate(model, atoms, **settings):
    calc = DP(model, compile=False, **settings)
    atoms = atoms.copy()
    atoms.calc = calc
    atoms.get_stress()
    return calc, {name: calc.results[name] for name in PROPERTIES}


def check_equal(results, expected):
    for name in PROPERTIES:
        np.testing.assert_array_equal(results[name], expected[name])


@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("backward", ["native", "cohort", "stream"])
def test_results_are_those_of_float64(backward, precision, case):
    """By the rule |a - b| <= 1e-5 + 1e-4 |b| for every number, and repeats are equal."""
    model, atoms, expected = case
    settings = {"kernels": "triton", "backward": backward, "precision": precision}
    calc, results = evaluate(model, atoms, cohort_edges=2048, **settings)
    for name in PROPERTIES:
        np.testing.assert_allclose(results[name], expected[name], rtol=1e-4, atol=1e-5)
    assert np.abs(results["forces"]).max() > 0.1
    assert calc._engine.backward.name == backward
    assert calc.settings.describe(calc.model).startswith("Triton kernels for the edges")
    for _ in range(3):
        check_equal(evaluate(model, atoms, cohort_edges=2048, **settings)[1], results)


@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("cohort_edges", [16, 8192])
def test_cohort_has_the_bits_of_native(cohort_edges, precision, case):
    model, atoms, _ = case
    settings = {"kernels": "triton", "precision": precision, "cohort_edges": cohort_edges}
    _, native = evaluate(model, atoms, backward="native", **settings)
    _, cohort = evaluate(model, atoms, backward="cohort", **settings)
    check_equal(cohort, native)


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_error_is_that_of_plain_float32(precision, case):
    model, atoms, expected = case
    _, plain = evaluate(model, atoms, kernels="torch", backward="native")
    _, fused = evaluate(
        model, atoms, kernels="triton", backward="native", precision=precision
    )
    for name in ("forces", "stress"):
        errors = [np.abs(x[name] - expected[name]).max() for x in (fused, plain)]
        assert errors[0] <= 2 * errors[1] + 2e-7 * np.abs(expected[name]).max()


@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("backward", ["native", "cohort", "stream"])
def test_water_is_as_exact_as_the_docs_say(backward, precision):
    exact, single, _ = _water()
    atoms = molecule("H2O", cell=[3.1] * 3, pbc=True) * (3, 3, 3)
    atoms.rattle(0.05, seed=4)
    expected = evaluate(exact, atoms, kernels="torch")[1]
    settings = {"kernels": "triton", "backward": backward, "precision": precision}
    found = evaluate(single, atoms, cohort_edges=4096, **settings)[1]
    assert found["energy"] == pytest.approx(expected["energy"], abs=3e-6 * len(atoms))
    largest = np.abs(expected["forces"]).max()
    np.testing.assert_allclose(found["forces"], expected["forces"], atol=1.2e-5 * largest)
    np.testing.assert_allclose(found["stress"], expected["stress"], rtol=1e-4, atol=1e-6)


def test_repeats_have_the_same_bits_with_other_structures_between():
    calc = DP(water_model(), device="cuda", compile=False, kernels="triton")
    atoms, other = read(water_structure()), bulk("O", "sc", a=2.4) * (2, 2, 2)
    calc.calculate(atoms)
    first = calc.results["forces"].copy()
    for _ in range(10):
        calc.calculate(other)
        calc.calculate(atoms)
        np.testing.assert_array_equal(calc.results["forces"], first)


def test_kernels_are_the_default(case):
    model, atoms, _ = case
    calc, results = evaluate(model, atoms)
    assert "Triton kernels for the edges" in calc.settings.describe(calc.model)
    assert calc._engine._fused is not calc.model
    settings = {"kernels": "triton", "backward": calc._engine.backward.name}
    check_equal(results, evaluate(model, atoms, **settings)[1])


def test_the_operators_run_only_where_kernels_are_wanted(case, monkeypatch):
    from dp_calc.kernels.so2 import ops

    model, atoms, _ = case
    calls, mix = [], ops.mix
    monkeypatch.setattr(ops, "mix", lambda *args: calls.append(1) or mix(*args))
    evaluate(model, atoms, kernels="torch")
    assert not calls
    evaluate(model, atoms, kernels="triton")
    assert calls
