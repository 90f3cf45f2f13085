"""The calculator inside ASE: dynamics, relaxation, files, copies, sums."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from ase import units
from ase.build import bulk
from ase.calculators.lj import LennardJones
from ase.calculators.mixing import SumCalculator
from ase.calculators.singlepoint import SinglePointCalculator
from ase.db import connect
from ase.filters import FrechetCellFilter
from ase.io import read, write
from ase.md.verlet import VelocityVerlet
from ase.optimize import BFGS

from dp_calc import DP


@pytest.fixture
def copper(calc):
    atoms = bulk("Cu", a=3.45, cubic=True)
    atoms.rattle(0.05, seed=0)
    atoms.calc = calc
    return atoms


def test_dynamics_conserve_energy(copper):
    momenta = np.random.default_rng(0).normal(scale=1.3, size=(4, 3))
    copper.set_momenta(momenta - momenta.mean(axis=0))
    energies = []
    dynamics = VelocityVerlet(copper, 1 * units.fs)
    dynamics.attach(lambda: energies.append(copper.get_total_energy()))
    dynamics.run(60)
    assert np.ptp(energies) < 2e-4
    np.testing.assert_allclose(copper.get_momenta().sum(axis=0), 0, atol=1e-12)


def test_one_evaluation_per_step(copper, pair_model):
    VelocityVerlet(copper, 1 * units.fs, logfile=None).run(5)
    copper.get_stress()
    assert pair_model.calls == 6


def test_relaxation(copper):
    assert BFGS(copper, logfile=None).run(fmax=1e-4, steps=50)
    assert np.abs(copper.get_forces()).max() < 1e-4


def test_relaxation_of_the_cell(copper):
    assert BFGS(FrechetCellFilter(copper), logfile=None).run(fmax=1e-4, steps=80)
    assert np.abs(copper.get_stress()).max() < 1e-4
    other = bulk("Cu", a=3.6)
    other.calc = copper.calc
    assert BFGS(FrechetCellFilter(other), logfile=None).run(fmax=1e-3, steps=80)
    assert 4 * other.get_potential_energy() == pytest.approx(
        copper.get_potential_energy(), abs=1e-4
    )


@pytest.mark.parametrize("name", ["triclinic", "slab without a third vector", "cluster"])
@pytest.mark.parametrize("suffix", ["traj", "extxyz", "json"])
def test_files_carry_the_results(name, suffix, structures, calc, tmp_path):
    atoms = structures[name]
    atoms.calc = calc
    energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    write(tmp_path / f"out.{suffix}", atoms)
    back = read(tmp_path / f"out.{suffix}")
    assert back.get_potential_energy() == pytest.approx(energy, abs=1e-7)
    np.testing.assert_allclose(back.get_forces(), forces, atol=1e-7)
    assert ("stress" in back.calc.results) == ("stress" in calc.results)
    if "stress" in calc.results:
        np.testing.assert_allclose(back.get_stress(), atoms.get_stress(), atol=1e-7)


def test_database_carries_the_results(structures, calc, tmp_path):
    atoms = structures["triclinic"]
    atoms.calc = calc
    forces = atoms.get_forces()
    with connect(tmp_path / "out.db") as database:
        database.write(atoms)
    row = connect(tmp_path / "out.db").get(1)
    assert row.energy == atoms.get_potential_energy()
    np.testing.assert_array_equal(row.forces, forces)
    np.testing.assert_array_equal(row.stress, atoms.get_stress())


def test_results_fit_the_containers_of_ase(structures, calc):
    atoms = structures["triclinic"]
    properties = calc.calculate_properties(atoms, ["energy", "forces", "stresses"])
    assert properties["energy"] == calc.results["energy"]
    assert "virial" not in properties
    results = {k: v for k, v in calc.results.items() if k != "virial"}
    frozen = SinglePointCalculator(atoms, **results)
    np.testing.assert_array_equal(frozen.get_stresses(), calc.results["stresses"])


def test_sum_with_another_calculator(copper, calc, pair_model):
    other = LennardJones(epsilon=1e-3, sigma=2.3, rc=5, smooth=True)
    parts = [
        (c.get_potential_energy(copper), c.get_forces(copper), c.get_stress(copper))
        for c in (calc, other)
    ]
    copper.calc = SumCalculator([calc, other])
    calls = pair_model.calls
    calc.reset()
    sums = copper.get_potential_energy(), copper.get_forces(), copper.get_stress()
    for total, one, two in zip(sums, *parts, strict=True):
        np.testing.assert_allclose(total, one + two, rtol=1e-12)
    assert pair_model.calls == calls + 1


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]
)
def test_copies_give_the_same_numbers(duplicate, used, structures):
    from dp_calc.data import __file__ as data_file

    calc = DP(data_file.replace("__init__.py", "water_mini.pt"), device="cpu")
    atoms = structures["cluster"]
    atoms.symbols = "HOHOH"
    if used:
        calc.calculate(atoms)
    other = duplicate(calc)
    assert other.model.dtype == calc.model.dtype
    np.testing.assert_array_equal(other.get_forces(atoms), calc.get_forces(atoms))


def test_nothing_ordinary_causes_a_warning(structures, calc):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for atoms in structures.values():
            atoms.calc = calc
            atoms.get_potential_energy()
            atoms.get_forces()
