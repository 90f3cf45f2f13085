"""Molecular dynamics on the command line: numbers, files and refusals."""

import json

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.constraints import FixAtoms
from ase.md.verlet import VelocityVerlet
from ase.units import GPa, fs, kB

from dp_calc import DP
from dp_calc.cli import dynamics
from dp_calc.cli.integrators import Observer, draw_velocities, make_dynamics
from dp_calc.data import water_model

from .md_cases import ENSEMBLES, water


def _log(path):
    return np.genfromtxt(path, delimiter=",", names=True)


def test_frames_are_those_of_ase(run_md, water_file, tmp_path):
    status, out, err = run_md(
        water_file(), "--steps", 6, "--every", 2, "--timestep-fs", 0.4
    )
    assert status == 0, err
    assert "7/7" in err
    atoms = water()
    atoms.calc = DP(water_model(), device="cpu")
    integrator = VelocityVerlet(atoms, 0.4 * fs)
    frames = ase.io.read(tmp_path / "md.traj", ":")
    assert len(frames) == 4
    for frame in frames:
        assert np.array_equal(frame.positions, atoms.positions)
        assert np.array_equal(frame.get_momenta(), atoms.get_momenta())
        assert np.array_equal(frame.get_forces(), atoms.get_forces())
        integrator.run(2)
    assert (tmp_path / "md.png").read_bytes().startswith(b"\x89PNG")
    assert "kinetic part included" in out


def test_log_agrees_with_the_frames(run_md, water_file, tmp_path):
    run_md(water_file(), "--steps", 4, "--every", 2, "--dtype", "float64")
    log = _log(tmp_path / "md.csv")
    assert log["time_fs"].tolist() == [0.0, 1.0, 2.0]
    calc = DP(water_model(), device="cpu", dtype="float64")
    for row, frame in zip(log, ase.io.read(tmp_path / "md.traj", ":"), strict=True):
        calc.calculate(frame)
        kinetic = (frame.get_momenta() ** 2 / frame.get_masses()[:, None]).sum() / 2
        assert row["potential_energy_eV"] == calc.results["energy"]
        assert row["total_energy_eV"] == pytest.approx(calc.results["energy"] + kinetic)
        # Three of nine degrees of freedom are the drift, which is zero.
        assert row["temperature_K"] == pytest.approx(2 * kinetic / 6 / kB)
        virial = np.trace(calc.results["virial"])
        pressure = (2 * kinetic + virial) / 3 / frame.get_volume() / GPa
        assert row["pressure_GPa"] == pytest.approx(pressure, rel=1e-9)
        assert row["volume_A3"] == pytest.approx(frame.get_volume())


@pytest.mark.parametrize("pbc", [False, (True, True, False)])
def test_open_structures_log_no_pressure(run_md, water_file, tmp_path, pbc):
    status, out, err = run_md(water_file(water(pbc)), "--steps", 1, "--every", 1)
    assert status == 0, err
    assert "pressure_GPa" not in _log(tmp_path / "md.csv").dtype.names
    assert "none: an axis is open" in out


def test_seed_decides_what_is_drawn(run_md, water_file, tmp_path):
    path = water_file(water(moving=False))
    momenta = []
    for seed in (1, 1, 2):
        status, out, err = run_md(
            path, "--steps", 1, "--temperature-k", 300, "--seed", seed, "--overwrite"
        )
        assert status == 0, err
        assert f"seed {seed}" in out
        momenta.append(ase.io.read(tmp_path / "md.traj", 0).get_momenta())
    assert np.array_equal(momenta[0], momenta[1])
    assert not np.allclose(momenta[0], momenta[2])
    assert np.abs(momenta[0].sum(0)).max() < 1e-12


def test_drawn_velocities_have_the_temperature():
    atoms = Atoms("OH2" * 300, positions=np.zeros((900, 3)))
    draw_velocities(atoms, 300, np.random.default_rng(0))
    observer = Observer(atoms, "nve")
    assert observer.degrees_of_freedom == 2697
    assert observer.temperature() == pytest.approx(300, rel=4 * (2 / 2697) ** 0.5)
    before = observer.temperature()
    atoms.set_velocities(atoms.get_velocities() + np.array([0.1, 0.2, 0.3]))
    assert observer.temperature() == pytest.approx(before)
    # Langevin's thermostat acts on the drift, so there it is heat.
    assert Observer(atoms, "langevin").temperature() > 2 * before


class NoForces(Calculator):
    implemented_properties = ("energy", "forces", "stress")

    def calculate(self, atoms=None, properties=None, system_changes=None):
        self.results = {
            "energy": 0.0,
            "forces": np.zeros((len(atoms), 3)),
            "stress": np.zeros(6),
        }


@pytest.mark.parametrize("ensemble", ["npt", "npt-cell", "npt-berendsen"])
def test_thermostats_of_small_systems_hold_the_temperature(ensemble):
    """Of an ideal gas of six atoms, whose exact average is known."""
    atoms = Atoms("Ar6", positions=9 * np.eye(6, 3) + np.arange(6)[:, None], pbc=True)
    atoms.cell = [25, 25, 25]
    atoms.calc = NoForces()
    draw_velocities(atoms, 300, np.random.default_rng(1))
    settings = {
        "ensemble": ensemble,
        "timestep_fs": 2.0,
        "temperature_k": 300,
        "pressure_gpa": 0.0015,
        "tau_t_fs": 50.0,
        "tau_p_fs": 500.0,
        "compressibility_per_gpa": 10.0,
    }
    integrator = make_dynamics(atoms, settings, np.random.default_rng(2))
    observer = Observer(atoms, ensemble)
    temperatures = [observer.temperature() for _ in integrator.irun(1500)]
    # 3 N instead of 3 N - 3 would give 360 K.
    assert np.mean(temperatures[200:]) == pytest.approx(300, abs=15)


def test_constraints_are_kept_and_told(run_md, water_file, tmp_path):
    atoms = water()
    atoms.set_constraint(FixAtoms([0]))
    status, out, err = run_md(water_file(atoms), "--steps", 5, "--every", 1)
    assert status == 0, err
    assert "FixAtoms, from the file and kept" in out
    assert "6 degrees of freedom" in out
    frames = ase.io.read(tmp_path / "md.traj", ":")
    assert all(np.array_equal(f.positions[0], atoms.positions[0]) for f in frames)
    assert not np.allclose(frames[-1].positions[1], atoms.positions[1], atol=1e-4)


def _npt(*pressure):
    return ("--ensemble", "npt", "--temperature-k", 300, *pressure)


@pytest.mark.parametrize(
    ("make", "args", "expected"),
    [
        (water, ("--steps", -5), "whole number of at least 1"),
        (water, ("--steps", "1e3"), "whole number of at least 1"),
        (water, ("--timestep-fs", 5e-16), "in fs, from 0.001 to 20"),
        (water, ("--timestep-fs", 500), "in fs, from 0.001 to 20"),
        (water, _npt("--pressure-gpa", 101325), "in GPa"),
        (water, ("--temperature-k", "nan"), "in K"),
        (water, ("--pressure-gpa", 1), "no meaning for the ensemble nve"),
        (water, ("--friction-per-ps", 1), "no meaning for the ensemble nve"),
        (water, ("--temperature-k", 300), "--new-velocities"),
        (water, _npt(), "needs --pressure-gpa"),
        (water, ("--ensemble", "langevin"), "needs --temperature-k"),
        (lambda: water(moving=False), (), "the file has no velocities"),
        (lambda: water(False), _npt("--pressure-gpa", 0), "axis 0 is open"),
        (lambda: water((1, 1, 0)), _npt("--pressure-gpa", 0), "axis 2 is open"),
        (lambda: _held([0]), _npt("--pressure-gpa", 0), "cannot keep the constraints"),
        (lambda: _held([0, 1, 2]), (), "hold every atom"),
        (lambda: Atoms("O"), ("--temperature-k", 300), "a single atom"),
        (lambda: _fast(), (), "more than --stop-above-k 10000"),
        (water, ("--frame", 3), "there is no frame 3"),
        (water, ("--resume", "--overwrite"), "not allowed with"),
        (lambda: Atoms("CuO", [[0, 0, 0], [0, 0, 2]]), ("--temp", 9), "contains Cu"),
        (lambda: Atoms("HO", [[0, 0, 0]] * 2), ("--temp", 9), "apart"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    run_md, water_file, tmp_path, make, args, expected
):
    path = water_file(make())
    status, out, err = run_md(path, "--steps", 2, *args)
    assert (status, out) == (2, "")
    assert expected in err
    assert err.rstrip().rpartition("\n")[2].startswith("dp-calc")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        ("in.traj", "would overwrite an input"),
        ("none/md.traj", "there is no folder"),
        ("md.cif", "endings .traj, .extxyz, .xyz"),
    ],
)
def test_bad_outputs(run_md, water_file, out, expected):
    status, _, err = run_md(water_file(), "--steps", 2, out=out)
    assert status == 2
    assert expected in err


def test_files_of_a_run_are_replaced_only_if_asked(run_md, water_file, tmp_path):
    path = water_file()
    for name in ("md.traj", "md.csv", "md.png", "md.checkpoint"):
        (tmp_path / name).write_text("mine")
        status, _, err = run_md(path, "--steps", 2)
        assert status == 2
        assert f"{name} exists already" in err
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()
    (tmp_path / "md.traj").write_text("mine")
    assert "there is no " in run_md(path, "--steps", 2, "--resume")[2]
    assert (tmp_path / "md.traj").read_text() == "mine"
    assert run_md(path, "--steps", 2, "--overwrite")[0] == 0
    assert len(ase.io.read(tmp_path / "md.traj", ":")) == 1


def test_a_system_that_blows_up_stops_and_keeps_the_last_good_state(
    run_md, water_file, tmp_path
):
    args = ("--timestep-fs", 19, "--every", 1, "--save-every", 1, "--stop-above-k", 5e3)
    status, _, err = run_md(water_file(), *args, "--steps", 500)
    assert status == 1
    assert "stopped after step" in err
    assert "the checkpoint of step" in err
    with np.load(tmp_path / "md.checkpoint") as file:
        step = json.loads(str(file["fields"]))["step"]
        assert np.isfinite(file["positions"]).all()
    assert step < 500
    frames = ase.io.read(tmp_path / "md.traj", ":")
    assert len(frames) == step + 1
    assert all(frame.get_temperature() < 5e3 for frame in frames)


def test_a_state_that_is_no_number_is_never_written(
    run_md, water_file, tmp_path, monkeypatch
):
    make = dynamics.make_dynamics

    def break_later(*args):
        integrator = make(*args)
        step = integrator.step

        def broken():
            step()
            if integrator.nsteps == 5:
                args[0].arrays["momenta"][0] = np.nan

        integrator.step = broken
        return integrator

    monkeypatch.setattr(dynamics, "make_dynamics", break_later)
    status, _, err = run_md(water_file(), "--steps", 9, "--every", 1, "--save-every", 2)
    assert status == 1
    assert "nan K" in err
    assert "step 4" in err
    frames = ase.io.read(tmp_path / "md.traj", ":")
    assert len(frames) == 6
    assert all(np.isfinite(frame.get_momenta()).all() for frame in frames)


def test_help_names_units_and_ensembles(dp_calc):
    status, out, _ = dp_calc("md", "--help")
    assert status == 0
    for expected in ("in fs", "in K", "in GPa", "1 bar is 0.0001 GPa", "in 1/ps"):
        assert expected in " ".join(out.split())
    assert all(f"  {name} " in out for name in ENSEMBLES)


def _held(indices):
    atoms = water()
    atoms.set_constraint(FixAtoms(indices))
    return atoms


def _fast():
    atoms = water()
    atoms.set_momenta(1e3 * atoms.get_momenta())
    return atoms
