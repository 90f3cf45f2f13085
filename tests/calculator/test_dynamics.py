"""Newtonian dynamics keeps the total energy."""

from pathlib import Path

import numpy as np
import pytest
from ase import units
from ase.io import read
from ase.md.verlet import VelocityVerlet

from dp_calc import DP
from dp_calc.data import water_model
from dp_calc.trajectory_stats import linear_drift

# Four molecules in a periodic cell at 300 K, with momenta.
WATER = Path(__file__).parents[1] / "data" / "water4.extxyz"
TIME = 40  # fs


@pytest.fixture(scope="module")
def calculator():
    return DP(water_model(), dtype="float64", device="cpu")


def total_energies(calculator, time_step):
    """Times in fs and total energies in eV of a run."""
    atoms = read(WATER)
    atoms.calc = calculator
    energies = []
    dynamics = VelocityVerlet(atoms, time_step * units.fs)
    dynamics.attach(lambda: energies.append(atoms.get_total_energy()))
    dynamics.run(round(TIME / time_step))
    return time_step * np.arange(len(energies)), np.array(energies)


def test_fluctuation_goes_with_the_square_of_the_time_step_without_a_slope(calculator):
    runs = {step: total_energies(calculator, step) for step in (1.0, 0.5)}
    for times, energies in runs.values():
        drift = linear_drift(times, energies)
        assert abs(drift.slope) < 2 * drift.standard_error
    coarse, fine = (np.std(energies) for _, energies in runs.values())
    assert coarse / fine == pytest.approx(4.0, rel=0.1)
