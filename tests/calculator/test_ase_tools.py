"""The calculator inside ASE: dynamics, relaxation, files, copies, sums."""

import warnings

import numpy as np
import pytest
from ase import units
from ase.build import bulk
from ase.calculators.singlepoint import SinglePointCalculator
from ase.db import connect
from ase.filters import FrechetCellFilter
from ase.io import read, write
from ase.md.verlet import VelocityVerlet
from ase.optimize import BFGS


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


def test_nothing_ordinary_causes_a_warning(structures, calc):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for atoms in structures.values():
            atoms.calc = calc
            atoms.get_potential_energy()
            atoms.get_forces()
