import json
import resource

import ase.io
import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import molecule
from ase.constraints import FixAtoms
from ase.md.verlet import VelocityVerlet
from ase.units import GPa, fs, kB

from dp_calc import DP
from dp_calc.cli import dynamics
from dp_calc.cli.checkpoint import Checkpoint
from dp_calc.cli.integrators import Observer, draw_velocities, make_dynamics
from dp_calc.data import water_model

ENSEMBLES = {
    "nve": (),
    "langevin": ("--temperature-k", 300),
    "npt": ("--temperature-k", 300, "--pressure-gpa", 0.1),
    "npt-cell": ("--temperature-k", 300, "--pressure-gpa", 0.1),
    "npt-berendsen": ("--temperature-k", 300, "--pressure-gpa", 0.1),
}


def _water(pbc=True, moving=True):
    atoms = molecule("H2O")
    atoms.rattle(0.02, seed=2)
    atoms.cell = [[4.2, 0, 0], [0.3, 4.4, 0], [-0.5, 0.2, 4.6]]
    atoms.pbc = pbc
    if moving:
        draw_velocities(atoms, 300, np.random.default_rng(5))
    return atoms


@pytest.fixture
def structure(tmp_path):
    """Write a structure with every digit."""

    def write(atoms=None, name="in.traj"):
        path = tmp_path / name
        ase.io.write(path, _water() if atoms is None else atoms)
        return path

    return write


@pytest.fixture
def run(dp_calc, tmp_path):
    """Run in an empty folder: status, stdout, stderr."""

    def run(path, *args, out="md.traj"):
        fixed = ("-m", water_model(), "--device", "cpu", "-o", tmp_path / out)
        return dp_calc("md", path, *fixed, *args)

    return run


def _log(path):
    return np.genfromtxt(path, delimiter=",", names=True)


def test_frames_are_those_of_ase(run, structure, tmp_path):
    status, out, err = run(structure(), "--steps", 6, "--every", 2, "--timestep-fs", 0.4)
    assert status == 0, err
    assert "7/7" in err
    atoms = _water()
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


def test_log_agrees_with_the_frames(run, structure, tmp_path):
    run(structure(), "--steps", 4, "--every", 2, "--dtype", "float64")
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
def test_open_structures_log_no_pressure(run, structure, tmp_path, pbc):
    status, out, err = run(structure(_water(pbc)), "--steps", 1, "--every", 1)
    assert status == 0, err
    assert "pressure_GPa" not in _log(tmp_path / "md.csv").dtype.names
    assert "none: an axis is open" in out


@pytest.mark.parametrize(
    ("ensemble", "name"),
    [*((e, "md.traj") for e in ENSEMBLES), ("langevin", "md.extxyz")],
)
def test_pieces_equal_the_whole(run, structure, tmp_path, ensemble, name):
    args = ("--ensemble", ensemble, *ENSEMBLES[ensemble], "--every", 3, "--seed", 7)
    path = structure()
    assert run(path, *args, "--steps", 14, out=f"whole-{name}")[0] == 0
    assert run(path, *args, "--steps", 4, out=name)[0] == 0
    # The same command goes on, even if what was chosen is left out.
    assert run(path, "--steps", 9, "--resume", out=name)[0] == 0
    status, _, err = run(path, *args, "--steps", 14, "--resume", out=name)
    assert status == 0, err
    for suffix in (name.rpartition(".")[2], "csv"):
        whole = tmp_path / f"whole-{name}"
        pieces = (tmp_path / name).with_suffix(f".{suffix}").read_bytes()
        assert pieces == whole.with_suffix(f".{suffix}").read_bytes()
    assert len(ase.io.read(tmp_path / name, ":")) == 5


def test_seed_decides_what_is_drawn(run, structure, tmp_path):
    path = structure(_water(moving=False))
    momenta = []
    for seed in (1, 1, 2):
        status, out, err = run(
            path, "--steps", 1, "--temperature-k", 300, "--seed", seed, "--overwrite"
        )
        assert status == 0, err
        assert f"seed {seed}" in out
        momenta.append(ase.io.read(tmp_path / "md.traj", 0).get_momenta())
    assert np.array_equal(momenta[0], momenta[1])
    assert not np.allclose(momenta[0], momenta[2])
    assert np.abs(momenta[0].sum(0)).max() < 1e-12


def test_a_seed_of_its_own_is_shown_and_kept(run, structure, tmp_path):
    path = structure()
    args = ("--ensemble", "langevin", "--temperature-k", 300)
    _, first, _ = run(path, *args, "--steps", 1)
    _, second, _ = run(path, *args, "--steps", 2, "--resume")
    seed = first.partition("seed ")[2].split()[0]
    assert seed == second.partition("seed ")[2].split()[0]


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


@pytest.mark.parametrize("ensemble", ["npt", "npt-cell", "npt-berendsen"])
def test_thermostats_of_small_systems_hold_the_temperature(ensemble):
    """Of an ideal gas of six atoms, whose exact average is known."""
    from ase.calculators.lj import LennardJones

    atoms = Atoms("Ar6", positions=9 * np.eye(6, 3) + np.arange(6)[:, None], pbc=True)
    atoms.cell = [25, 25, 25]
    atoms.calc = LennardJones(epsilon=1e-9, rc=3.0)
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


def test_constraints_are_kept_and_told(run, structure, tmp_path):
    atoms = _water()
    atoms.set_constraint(FixAtoms([0]))
    status, out, err = run(structure(atoms), "--steps", 5, "--every", 1)
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
        (_water, ("--steps", -5), "whole number of at least 1"),
        (_water, ("--steps", "1e3"), "whole number of at least 1"),
        (_water, ("--timestep-fs", 5e-16), "in fs, from 0.001 to 20"),
        (_water, ("--timestep-fs", 500), "in fs, from 0.001 to 20"),
        (_water, _npt("--pressure-gpa", 101325), "in GPa"),
        (_water, ("--temperature-k", "nan"), "in K"),
        (_water, ("--pressure-gpa", 1), "no meaning for the ensemble nve"),
        (_water, ("--friction-per-ps", 1), "no meaning for the ensemble nve"),
        (_water, ("--temperature-k", 300), "--new-velocities"),
        (_water, _npt(), "needs --pressure-gpa"),
        (_water, ("--ensemble", "langevin"), "needs --temperature-k"),
        (lambda: _water(moving=False), (), "the file has no velocities"),
        (lambda: _water(False), _npt("--pressure-gpa", 0), "axis 0 is open"),
        (lambda: _water((1, 1, 0)), _npt("--pressure-gpa", 0), "axis 2 is open"),
        (lambda: _held([0]), _npt("--pressure-gpa", 0), "cannot keep the constraints"),
        (lambda: _held([0, 1, 2]), (), "hold every atom"),
        (lambda: Atoms("O"), ("--temperature-k", 300), "a single atom"),
        (lambda: _fast(), (), "more than --stop-above-k 10000"),
        (_water, ("--frame", 3), "there is no frame 3"),
        (_water, ("--resume", "--overwrite"), "not allowed with"),
        (lambda: Atoms("CuO", [[0, 0, 0], [0, 0, 2]]), ("--temp", 9), "contains Cu"),
        (lambda: Atoms("HO", [[0, 0, 0]] * 2), ("--temp", 9), "apart"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    run, structure, tmp_path, make, args, expected
):
    path = structure(make())
    status, out, err = run(path, "--steps", 2, *args)
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
def test_bad_outputs(run, structure, out, expected):
    status, _, err = run(structure(), "--steps", 2, out=out)
    assert status == 2
    assert expected in err


def test_files_of_a_run_are_replaced_only_if_asked(run, structure, tmp_path):
    path = structure()
    for name in ("md.traj", "md.csv", "md.png", "md.checkpoint"):
        (tmp_path / name).write_text("mine")
        status, _, err = run(path, "--steps", 2)
        assert status == 2
        assert f"{name} exists already" in err
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()
    (tmp_path / "md.traj").write_text("mine")
    assert "there is no " in run(path, "--steps", 2, "--resume")[2]
    assert (tmp_path / "md.traj").read_text() == "mine"
    assert run(path, "--steps", 2, "--overwrite")[0] == 0
    assert len(ase.io.read(tmp_path / "md.traj", ":")) == 1


def test_resume_without_anything_to_resume_starts(run, structure, tmp_path):
    assert run(structure(), "--steps", 2, "--resume")[0] == 0
    assert (tmp_path / "md.checkpoint").is_file()


@pytest.fixture
def half(run, structure, tmp_path):
    """A run of four steps, with frames at every step."""
    path = structure()
    assert run(path, "--steps", 4, "--every", 1)[0] == 0
    return path


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--timestep-fs", 1), "timestep_fs is 1.0 (was 0.5)"),
        (("--every", 2), "every is 2 (was 1)"),
        (("--dtype", "float64"), "dtype is float64 (was float32)"),
        (("--ensemble", "langevin", "--temp", 300), "ensemble is langevin (was nve)"),
        (("--steps", 3), "has 4 steps already"),
    ],
)
def test_another_run_is_not_resumed(run, half, tmp_path, args, expected):
    before = (tmp_path / "md.traj").read_bytes()
    status, _, err = run(half, "--steps", 8, *args, "--resume")
    assert status == 2
    assert expected in err
    assert (tmp_path / "md.traj").read_bytes() == before


def test_another_structure_or_model_is_not_resumed(dp_calc, run, half, tmp_path):
    ase.io.write(tmp_path / "other.traj", _water(pbc=False))
    status, _, err = run(tmp_path / "other.traj", "--steps", 8, "--resume")
    assert status == 2
    assert "the structure is another one" in err
    model = tmp_path / "model.pt"
    content = torch.load(water_model(), weights_only=False)
    torch.save({**content, "another": 1}, model)
    args = ("-o", tmp_path / "md.traj", "--steps", 8, "--resume", "--device", "cpu")
    status, _, err = dp_calc("md", half, "-m", model, *args)
    assert status == 2
    assert "the model is another one" in err


@pytest.mark.parametrize("name", ["md.traj", "md.csv"])
@pytest.mark.parametrize("change", ["shorter", "other", "gone"])
def test_files_that_are_not_those_of_the_checkpoint(run, half, tmp_path, name, change):
    path = tmp_path / name
    content = path.read_bytes()
    other = {"shorter": content[:-1], "other": b"x" * 2 * len(content)}
    path.unlink() if change == "gone" else path.write_bytes(other[change])
    status, _, err = run(half, "--steps", 8, "--resume")
    assert status == 2
    assert f"{name} is not the file that the checkpoint belongs to" in err
    if change == "other":
        assert path.read_bytes() == other["other"]


@pytest.mark.parametrize("name", ["md.extxyz", "md.traj"])
def test_notes_of_any_kind_in_the_file_do_not_stop_the_run(run, structure, name):
    atoms = _water()
    atoms.info.update({1: 2, "nested": {"a": [1]}, "no": None})
    atoms.arrays["objects"] = np.array([None, "a", 1], dtype=object)
    path = structure(atoms, "notes.traj")
    for steps in (1, 2):
        status, _, err = run(path, "--steps", steps, "--every", 1, "--resume", out=name)
        assert status == 0, err


def test_a_missing_table_costs_no_frame(run, half, tmp_path):
    (tmp_path / "md.csv").unlink()
    frames = tmp_path / "md.traj"
    with ase.io.Trajectory(frames, "a") as writer:
        writer.write(_water())
    before = frames.read_bytes()
    status, out, err = run(half, "--steps", 8, "--resume")
    assert (status, out) == (2, "")
    assert "md.csv is not the file that the checkpoint belongs to" in err
    assert frames.read_bytes() == before


def test_a_checkpoint_with_any_flipped_byte_is_read_or_called_damaged(
    run, half, tmp_path
):
    path = tmp_path / "md.checkpoint"
    content = path.read_bytes()
    directory = content.rfind(b"PK\x01\x02")  # of the last entry; then the end record
    told = []
    for place in [*range(0, 30), *range(directory, len(content))]:
        flipped = bytearray(content)
        flipped[place] ^= 0xFF
        path.write_bytes(flipped)
        try:
            Checkpoint.read(path, "md")
        except ValueError as error:
            told.append(str(error))
    assert len(told) > 50
    assert all("damaged" in text for text in told)


@pytest.mark.parametrize("content", [b"", b"noise", None])
def test_damaged_checkpoints_are_refused(run, half, tmp_path, content):
    path = tmp_path / "md.checkpoint"
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    status, _, err = run(half, "--steps", 8, "--resume")
    assert status == 2
    assert "damaged" in err


def test_other_circumstances_are_told(run, half, monkeypatch):
    import dp_calc.cli.resume as resume

    now = resume.circumstances
    monkeypatch.setattr(resume, "circumstances", lambda c: {**now(c), "device": "cuda:7"})
    status, _, err = run(half, "--steps", 5, "--resume")
    assert status == 0, err
    assert "warning: device is cuda:7 (was cpu)" in err


def test_a_run_that_another_process_holds_is_refused(run, half, tmp_path):
    fcntl = pytest.importorskip("fcntl", reason="runs where files can be locked (POSIX)")
    with (tmp_path / "md.traj").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        status, _, err = run(half, "--steps", 8, "--resume")
    assert status == 2
    assert "another dp-calc is writing" in err
    assert run(half, "--steps", 8, "--resume")[0] == 0


def test_a_system_that_blows_up_stops_and_keeps_the_last_good_state(
    run, structure, tmp_path
):
    args = ("--timestep-fs", 19, "--every", 1, "--save-every", 1, "--stop-above-k", 5e3)
    status, _, err = run(structure(), *args, "--steps", 500)
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
    run, structure, tmp_path, monkeypatch
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
    status, _, err = run(structure(), "--steps", 9, "--every", 1, "--save-every", 2)
    assert status == 1
    assert "nan K" in err
    assert "step 4" in err
    frames = ase.io.read(tmp_path / "md.traj", ":")
    assert len(frames) == 6
    assert all(np.isfinite(frame.get_momenta()).all() for frame in frames)


def test_a_full_disk_loses_nothing(run, structure, tmp_path):
    path = structure()
    args = ("--steps", 30, "--every", 1, "--save-every", 4)
    assert run(path, *args, out="whole.traj")[0] == 0
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, limits[1]))
    try:
        status, _, err = run(path, *args)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 2
    assert "the same command with --resume goes on" in err
    assert run(path, *args, "--resume")[0] == 0
    for suffix in (".traj", ".csv"):
        whole = (tmp_path / "whole.traj").with_suffix(suffix).read_bytes()
        assert (tmp_path / "md.traj").with_suffix(suffix).read_bytes() == whole


def test_help_names_units_and_ensembles(dp_calc):
    status, out, _ = dp_calc("md", "--help")
    assert status == 0
    for expected in ("in fs", "in K", "in GPa", "1 bar is 0.0001 GPa", "in 1/ps"):
        assert expected in " ".join(out.split())
    assert all(f"  {name} " in out for name in ENSEMBLES)


def _held(indices):
    atoms = _water()
    atoms.set_constraint(FixAtoms(indices))
    return atoms


def _fast():
    atoms = _water()
    atoms.set_momenta(1e3 * atoms.get_momenta())
    return atoms
