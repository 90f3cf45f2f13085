"""Descriptors and the last hidden layer through the calculator."""

from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms

from dp_calc import DP

DATA = Path(__file__).parents[1] / "data"

with np.load(DATA / "embeddings.ref.npz") as stored:
    REFERENCE = {key: stored[key] for key in stored.files}
CASES = sorted({tuple(key.split("/")[:2]) for key in REFERENCE})


def case(name, structure):
    values = {k: REFERENCE[f"{name}/{structure}/{k}"] for k in ("numbers", "pbc", "cell")}
    atoms = Atoms(positions=REFERENCE[f"{name}/{structure}/positions"], **values)
    expected = [
        REFERENCE[f"{name}/{structure}/{k}"] for k in ("descriptor", "atomic_feature")
    ]
    return atoms, *expected


@pytest.mark.parametrize(("name", "structure"), CASES)
def test_agree_with_the_reference(name, structure):
    calc = DP(DATA / f"{name}.pt", dtype="float64", device="cpu")
    atoms, descriptors, hidden = case(name, structure)
    for result, expected in (
        (calc.get_descriptors(atoms), descriptors),
        (calc.get_last_hidden(atoms), hidden),
    ):
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-9)


def test_are_fresh_float64_arrays_in_either_precision():
    atoms, descriptors, _ = case(*CASES[0])
    for dtype in ("float32", "float64"):
        calc = DP(DATA / f"{CASES[0][0]}.pt", dtype=dtype, device="cpu")
        result = calc.get_descriptors(atoms)
        assert result.dtype == np.float64
        assert result.flags.owndata
        np.testing.assert_allclose(result, descriptors, rtol=0, atol=1e-4)
        result[:] = np.nan
        assert np.isfinite(calc.get_descriptors(atoms)).all()


def test_leave_the_last_calculation_alone():
    calc = DP(DATA / "plain.pt", device="cpu")
    atoms = Atoms("CO", [[0, 0, 0], [0, 0, 1.2]])
    with pytest.raises(ValueError, match="give atoms"):
        calc.get_descriptors()
    calc.calculate(atoms)
    results, held = dict(calc.results), calc.atoms
    other = calc.get_descriptors(Atoms("HO", [[0, 0, 0], [0, 0, 1.0]]))
    assert calc.results == results
    assert calc.atoms is held
    own = calc.get_descriptors()
    np.testing.assert_array_equal(own, calc.get_descriptors(atoms))
    assert np.abs(own - other).max() > 1e-3


def test_depend_on_the_further_inputs():
    calc = DP(DATA / "conditions.pt", dtype="float64", device="cpu")
    atoms = Atoms("NaCl", [[0, 0, 0], [0, 0, 2.4]])
    atoms.info.update(charge=0, spin=1, fparam=[0.1, 0.2], aparam=[1, 2, 3])
    atoms.arrays["spin"] = np.ones((2, 3))
    energies = calc.get_property("energies", atoms)
    before = calc.get_descriptors(atoms), calc.get_last_hidden(atoms)
    model, types = calc.model, [calc.type_map.index(s) for s in atoms.symbols]
    readout = model.fitting.output_layer(torch.tensor(before[1]))[:, 0]
    bias = model.fitting_bias[types, 0] + model.out_bias[0, types, 0]
    np.testing.assert_allclose((readout + bias).numpy(), energies, rtol=0, atol=1e-9)
    atoms.info["fparam"][0] += 1
    assert (calc.get_descriptors(atoms) == before[0]).all()
    assert np.abs(calc.get_last_hidden(atoms) - before[1]).max() > 1e-4
    atoms.arrays["spin"][0] = 0
    assert np.abs(calc.get_descriptors(atoms) - before[0]).max() > 1e-4


def test_of_models_with_virtual_atoms_are_those_of_the_real_ones():
    calc = DP(DATA / "deepspin.pt", device="cpu")
    atoms = Atoms("NaCl", [[0, 0, 0], [0, 0, 2.4]])
    atoms.arrays["spin"] = np.ones((2, 3))
    assert calc.get_descriptors(atoms).shape == (2, 6)
    assert len(calc.get_last_hidden(atoms)) == 2


@pytest.mark.parametrize("name", ["get_descriptors", "get_last_hidden"])
def test_values_that_are_not_finite_are_an_error(name, pair_model):
    def broken(types, edges, conditions):
        return torch.full((len(types), 2), torch.nan)

    pair_model.descriptors = pair_model.last_hidden = broken
    with pytest.raises(FloatingPointError, match="not finite"):
        getattr(DP(pair_model), name)(Atoms("O"))


@pytest.mark.parametrize("context", [torch.inference_mode, torch.enable_grad])
def test_within_any_grad_mode(context):
    calc = DP(DATA / "plain.pt", device="cpu")
    atoms = Atoms("CO", [[0, 0, 0], [0, 0, 1.2]])
    expected = calc.get_last_hidden(atoms)
    with context():
        np.testing.assert_array_equal(calc.get_last_hidden(atoms), expected)
        calc.get_property("forces", atoms)
