"""Section E: results, files, sums of calculators."""

import copy

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, molecule
from ase.calculators.lj import LennardJones
from ase.calculators.mixing import SumCalculator
from ase.db import connect
from ase.io import read, write
from reports import COPPER, WATER, evaluate, evaluations, ice

from dp_calc import DP, Settings


def _crystal(n):
    atoms = bulk("Cu") * (n, 1, 1)
    atoms.rattle(0.1, seed=0)
    return atoms


@pytest.mark.case("E1")
@pytest.mark.parametrize("n_atoms", [1, 2, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_database_keeps_every_bit_of_the_results(n_atoms, dtype, tmp_path):
    atoms = _crystal(n_atoms)
    energy, forces = evaluate(atoms, DP(COPPER, dtype=dtype))
    database = connect(tmp_path / "x.db")
    database.write(atoms)  # with the living calculator, as it is
    row = database.get(1)
    assert row.energy == energy
    np.testing.assert_array_equal(row.forces, forces)
    np.testing.assert_array_equal(row.stress, atoms.get_stress())
    assert row.forces.shape == (n_atoms, 3)
    assert row.stress.shape == (6,)
    back = row.toatoms()
    np.testing.assert_array_equal(back.get_forces(), forces)


@pytest.mark.case("E1")
@pytest.mark.parametrize(
    ("suffix", "rounding"), [("traj", 0), ("json", 0), ("extxyz", 1e-8), ("xyz", 1e-8)]
)
def test_files_keep_the_results(suffix, rounding, tmp_path):
    atoms, path = _crystal(2), tmp_path / f"x.{suffix}"
    energy, forces = evaluate(atoms, DP(COPPER))
    write(path, [atoms, atoms])
    back = read(path, 1)
    np.testing.assert_allclose(back.get_forces(), forces, rtol=0, atol=rounding)
    np.testing.assert_allclose(back.get_potential_energy(), energy, rtol=rounding)
    np.testing.assert_allclose(back.get_stress(), atoms.get_stress(), atol=rounding)


@pytest.mark.case("E2")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("atoms", [bulk("Cu"), Atoms("Cu"), molecule("H2O")])
def test_energy_is_a_float(atoms, dtype):
    atoms, calc = atoms.copy(), DP(COPPER, dtype=dtype)
    assert type(evaluate(atoms, calc)[0]) is float
    for name in ("energy", "free_energy"):
        assert type(calc.results[name]) is float
    for name, value in calc.results.items():
        if "energy" not in name:
            assert value.dtype == np.float64


def _lennard_jones():
    return LennardJones(epsilon=1e-3, sigma=2.3, rc=5, smooth=True)


@pytest.mark.case("E5")
@pytest.mark.parametrize("make", [ice, lambda: molecule("H2O")])
def test_a_sum_with_a_dispersion_correction_is_the_sum(make):
    atoms, calc = make(), DP(WATER)
    names = ["energy", "forces", *(["stress"] if atoms.pbc.any() else [])]
    expected = [
        DP(WATER).get_property(name, atoms) + _lennard_jones().get_property(name, atoms)
        for name in names
    ]
    passes = evaluations(calc)
    total = SumCalculator([calc, _lennard_jones()])
    for name, value in zip(names, expected, strict=True):
        np.testing.assert_allclose(
            total.get_property(name, atoms), value, rtol=1e-6, atol=1e-6
        )
    assert len(passes) == 1
    atoms.calc = total
    for _ in range(3):
        atoms.rattle(0.01, rng=np.random.default_rng(len(passes)))
        for name in names:
            total.get_property(name, atoms)
    assert len(passes) == 4


@pytest.mark.case("E5")
def test_a_sum_asked_for_one_property_gives_the_others_afterwards():
    atoms = ice()
    atoms.calc = SumCalculator([DP(WATER), _lennard_jones()])
    stress, forces, energy = (
        atoms.get_stress(),
        atoms.get_forces(),
        atoms.get_potential_energy(),
    )
    assert np.isfinite([*stress, *forces.ravel(), energy]).all()
    again = atoms.copy()
    again.calc = copy.copy(atoms.calc)
    assert again.get_potential_energy() == pytest.approx(energy)


BOOLEANS = [
    f.name for f in Settings.__dataclass_fields__.values() if "bool" in str(f.type)
]


@pytest.mark.case("E6")
@pytest.mark.parametrize("value", ["False", "True", "", 1, 0, "no"])
@pytest.mark.parametrize("name", BOOLEANS)
def test_a_text_is_not_taken_for_true(name, value):
    with pytest.raises(ValueError, match=f"{name} must be .*True"):
        DP(COPPER, **{name: value})
