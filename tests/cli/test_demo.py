import re
from contextlib import redirect_stdout
from io import StringIO

import ase.io
import matplotlib
import numpy as np
import pytest
from ase.units import fs

from dp_calc import DP
from dp_calc.cli import main
from dp_calc.data import water_model, water_structure
from dp_calc.trajectory_stats import linear_drift


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Folder that a short demo wrote to, and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    backend = _backend()
    with redirect_stdout(StringIO()) as text:
        assert main(["demo", "--out", str(out), "--steps", "10"]) == 0
    assert _backend() == backend
    return out, text.getvalue()


def _backend():
    """What is set, without choosing one as matplotlib does for those who ask."""
    return dict.__getitem__(matplotlib.rcParams, "backend")


@pytest.fixture(scope="module")
def frames(demo):
    return ase.io.read(demo[0] / "water.traj", index=":")


def test_says_what_was_loaded_and_how_it_runs(demo):
    for expected in ("650,348 parameters", "O H", "6 Å", "PyTorch on", "because"):
        assert expected in demo[1]


def test_prints_the_results_of_the_stored_structure(demo):
    atoms = ase.io.read(water_structure())
    atoms.calc = DP(water_model())
    energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    _, text = demo
    printed = float(re.search(r"energy +(\S+) eV", text)[1])
    assert printed == pytest.approx(energy, abs=192e-5)
    largest = float(re.search(r"largest \|F\| (\S+)", text)[1])
    assert largest == pytest.approx(np.linalg.norm(forces, axis=1).max(), abs=2e-4)
    virial = re.search(r"virial \(eV\)(( +\S+){3}\n?){3}", text)[0].split()[2:]
    expected = atoms.calc.results["virial"].ravel()
    assert np.array(virial, float) == pytest.approx(expected, abs=2e-3)
    stress = text.partition("stress (GPa)")[2].splitlines()[1].split()
    expected = atoms.get_stress() * 160.21766
    assert np.array(stress, float) == pytest.approx(expected, abs=2e-3)


def test_starts_from_the_stored_momenta_and_moves_by_the_time_step(frames):
    start = ase.io.read(water_structure())
    assert len(frames) == 11
    assert frames[0].get_momenta() == pytest.approx(start.get_momenta())
    moved = frames[1].positions - frames[0].positions
    accelerated = frames[0].get_forces() / frames[0].get_masses()[:, None]
    step = 0.5 * fs
    expected = start.get_velocities() * step + accelerated * step**2 / 2
    assert moved == pytest.approx(expected, abs=1e-7)


def test_total_energy_is_conserved_and_told(demo, frames):
    energies = np.array([frame.get_total_energy() for frame in frames])
    drift = linear_drift(0.5 * np.arange(11), energies)
    micro = 1e6 / 192
    fluctuation = float(re.search(r"fluctuates by (\S+) µeV/atom", demo[1])[1])
    assert fluctuation == pytest.approx(drift.fluctuation * micro, abs=0.01)
    assert fluctuation < 100
    slope, error = re.search(r"slope +(\S+) ± (\S+) µeV/atom per ps", demo[1]).groups()
    assert float(slope) == pytest.approx(drift.slope * micro * 1e3, abs=0.1)
    assert float(error) == pytest.approx(drift.standard_error * micro * 1e3, abs=0.1)
    kinetic = np.array([frame.get_kinetic_energy() for frame in frames])
    assert np.ptp(kinetic) > 20 * np.ptp(energies)


def test_draws_a_picture(demo):
    picture = (demo[0] / "water.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000


def test_output_folder_that_is_a_file_is_refused_before_the_run(dp_calc, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    status, out, err = dp_calc("demo", "--out", path)
    assert (status, out) == (2, "")
    assert err == f"dp-calc: error: {path}: File exists\n"
    assert path.read_text() == "mine"


@pytest.mark.parametrize("steps", ["0", "9", "-5", "1e3", "many"])
def test_step_counts_without_meaning_are_refused(dp_calc, steps):
    status, _, err = dp_calc("demo", f"--steps={steps}")
    assert status == 2
    assert "at least 10" in err
