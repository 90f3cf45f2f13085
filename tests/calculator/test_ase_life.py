"""ASE around the calculator: files, databases, sums, what it is made of, discovery."""

import json
import shutil
import subprocess
import sys
import warnings
from importlib.metadata import entry_points, version
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from ase.calculators.calculator import all_properties
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones
from ase.calculators.mixing import SumCalculator
from ase.db import connect
from ase.io import read, write
from ase.io.formats import ioformats
from ase.io.trajectory import Trajectory
from ase.md.verlet import VelocityVerlet
from ase.optimize import BFGS

import dp_calc
from dp_calc import DP, load_model

DATA = Path(__file__).parents[1] / "data"
TINY = DATA / "zero_block.pt"
CLASSIC = DATA / "classic" / "se_e2_a.pt"


def copper():
    atoms = bulk("Cu", a=3.5, cubic=True)
    atoms.rattle(0.1, seed=0)
    return atoms


def water():
    return Atoms("OH2", [[0, 0, 0], [0.95, 0, 0], [-0.25, 0.92, 0]])


@pytest.fixture(scope="module")
def file_calc():
    return DP(TINY, device="cpu")


@pytest.fixture
def evaluated(file_calc):
    atoms = copper()
    atoms.calc = file_calc
    atoms.get_potential_energy()
    return atoms


# Files

EXACT = {"traj": 0, "bundletrajectory": 0, "json": 1e-15, "db": 0, "extxyz": 5e-9}
"""Formats that keep results, and how far each may be from the truth."""

DRAWINGS = ("eps", "gif", "mp4", "png", "pov", "x3d", "html")
FORMATS = sorted(n for n, f in ioformats.items() if f.can_write and n not in DRAWINGS)


@pytest.mark.parametrize("name", EXACT)
def test_formats_that_keep_results(name, evaluated, tmp_path):
    calc = evaluated.calc
    write(tmp_path / f"file.{name}", evaluated, format=name)
    found = read(tmp_path / f"file.{name}", format=name)
    kept = found.calc.results
    assert {"energy", "forces", "stress"} <= kept.keys()
    for key, value in kept.items():
        error = np.abs(value - calc.results[key]).max()
        assert error <= EXACT[name] * (1 + np.abs(value).max())
    if name in ("traj", "json", "db"):
        assert found.calc.name == "dp"


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_written_as_for_other_calculators(name, evaluated, tmp_path):
    """Of the many formats of ASE none trips over this calculator."""
    other = copper()
    other.calc = EMT()
    other.get_forces(), other.get_stress()
    outcomes = [
        written(atoms, tmp_path / label, name)
        for label, atoms in (("own", evaluated), ("other", other))
    ]
    assert outcomes[0] == outcomes[1]


def written(atoms, path, name):
    """What comes of writing and reading: an error, or the names of what is kept."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            write(path, atoms, format=name)
        except Exception as error:
            return type(error)
        try:
            found = read(path, format=name)
        except Exception as error:
            return type(error)
    if found.calc is None:
        return None
    basic = ("energy", "forces", "stress")
    return found.calc.name in ("dp", "emt"), [b for b in basic if b in found.calc.results]


@pytest.mark.parametrize("name", ["traj", "extxyz", "json"])
def test_many_frames_of_changing_size(name, file_calc, tmp_path):
    path, expected = tmp_path / f"file.{name}", []
    for atoms in [copper(), water(), copper()[:1], water()]:
        atoms.calc = file_calc
        expected.append((atoms.get_potential_energy(), atoms.get_forces()))
        if name == "traj":  # which ase.io.write does not append to
            Trajectory(path, "a", atoms).write()
        else:
            write(path, atoms, append=len(expected) > 1)
    found = read(path, index=":")
    for atoms, (energy, forces) in zip(found, expected, strict=True):
        assert atoms.get_potential_energy() == pytest.approx(energy, rel=1e-9)
        np.testing.assert_allclose(atoms.get_forces(), forces, atol=5e-9)


def test_trajectories_of_dynamics_and_relaxation(calc, pair_model, tmp_path):
    for method in (VelocityVerlet, BFGS):
        atoms = copper()
        atoms.calc = calc
        keyword = {"timestep": 1.0} if method is VelocityVerlet else {}
        path = tmp_path / f"{method.__name__}.traj"
        run = method(atoms, trajectory=str(path), logfile=None, **keyword)
        seen = []
        run.attach(lambda a=atoms, s=seen: s.append(a.get_potential_energy()))
        pair_model.calls = 0
        run.run(steps=3)
        assert pair_model.calls == 4
        frames = Trajectory(path)
        assert [frame.get_potential_energy() for frame in frames] == seen
        assert frames[-1].calc.parameters["provenance"]["dp_calc"] == version("dp-calc")


def test_database(evaluated, tmp_path):
    calc = evaluated.calc
    with connect(tmp_path / "results.db") as database:
        database.write(evaluated, set="training")
        row = database.get(set="training")
    for name in set(all_properties) & calc.results.keys() - {"energies"}:
        assert name in row
        np.testing.assert_array_equal(row[name], calc.results[name])
    assert row.stress.shape == (6,)
    assert row.calculator == "dp"
    assert row.calculator_parameters == calc.todict()
    atoms = row.toatoms()
    np.testing.assert_array_equal(atoms.get_forces(), calc.results["forces"])
    again = DP.fromdict(row.calculator_parameters)
    assert again.get_property("energy", atoms) == row.energy


# Sums, as with a dispersion correction


class Dispersion(LennardJones):
    """Stands for a correction: attractive, with stress where there is a cell."""

    def __init__(self):
        super().__init__(epsilon=1e-3, sigma=2.3, rc=5, smooth=True)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("make", [copper, water])
def test_sum_with_a_correction(make, order, file_calc):
    atoms, parts = make(), [file_calc, Dispersion()][::order]
    alone = []
    for part in (DP(TINY, device="cpu"), Dispersion()):
        one = make()
        one.calc = part
        stress = one.get_stress() if one.pbc.any() else 0
        alone.append((one.get_potential_energy(), one.get_forces(), stress))
    energy, forces, stress = (one + two for one, two in zip(*alone, strict=True))
    atoms.calc = SumCalculator(parts)
    assert atoms.get_potential_energy() == pytest.approx(energy, rel=1e-12)
    np.testing.assert_allclose(atoms.get_forces(), forces, rtol=1e-9, atol=1e-12)
    if atoms.pbc.any():
        np.testing.assert_allclose(atoms.get_stress(), stress, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("periodic", [True, False])
def test_sums_evaluate_the_model_once_for_each_step(periodic, calc, pair_model):
    atoms = copper()
    if not periodic:
        atoms.pbc, atoms.cell = False, None
    atoms.calc = SumCalculator([calc, Dispersion()])
    run = VelocityVerlet(atoms, 1.0, logfile=None)
    ask = [atoms.get_potential_energy, atoms.get_forces]
    for function in ask + [atoms.get_stress] * periodic:
        run.attach(function)
    run.run(4)
    assert pair_model.calls == 5


# What it is made of


def test_todict_is_plain_data(file_calc):
    record = file_calc.todict()
    assert json.loads(json.dumps(record)) == record
    assert record["model"] == str(TINY)
    assert (record["head"], record["device"], record["dtype"]) == (
        "Default",
        "cpu",
        "float32",
    )
    assert record["kernels"] == "auto"
    provenance = record["provenance"]
    assert provenance["dp_calc"] == dp_calc.__version__
    assert provenance["torch"] == torch.__version__
    checksum = subprocess.run(["sha256sum", TINY], capture_output=True, text=True)
    assert provenance["sha256"] == checksum.stdout.split()[0]


def test_todict_tells_the_truth_whatever_happens_to_the_parameters():
    calc = DP(TINY, device="cpu")
    assert calc.todict() == {**calc.parameters, "provenance": calc.todict()["provenance"]}
    calc.parameters["dtype"] = "float64"
    assert calc.todict()["dtype"] == "float32"


def test_fromdict_makes_the_same_calculator():
    calc = DP(
        CLASSIC,
        device="cpu",
        dtype="float64",
        nlist_backend="ase",
        type_dict={"Cu": np.int64(1), "Na": 0},
        compress=True,
        stride=0.02,
        kernels="torch",
    )
    record = json.loads(json.dumps(calc.todict()))
    again = DP.fromdict(record)
    assert again.todict() == calc.todict()
    assert again.settings == calc.settings
    atoms = bulk("CuNa", "rocksalt", a=5.6)
    atoms.rattle(0.1, seed=0)
    forces = calc.get_property("forces", atoms)
    np.testing.assert_array_equal(again.get_property("forces", atoms), forces)
    changed = DP.fromdict(record, dtype="float32")
    assert changed.model.dtype == torch.float32
    assert changed.settings == calc.settings


def test_fromdict_of_a_loaded_model_and_of_a_subclass():
    class Own(DP):
        pass

    calc = DP(load_model(TINY, device="cpu", dtype="float64"))
    again = Own.fromdict(calc.todict())
    assert type(again) is Own
    assert again.model.dtype == torch.float64


@pytest.mark.parametrize("junk", [None, "model.pt", {"provenance": 3}])
def test_fromdict_of_something_else_says_what_it_takes(junk):
    with pytest.raises(TypeError, match=r"what todict\(\) gives"):
        DP.fromdict(junk)


def test_fromdict_notices_another_file(tmp_path):
    path = tmp_path / "model.pt"
    shutil.copy(TINY, path)
    record = DP(path, device="cpu").todict()
    shutil.copy(DATA / "plain.pt", path)
    with pytest.raises(ValueError, match=r"not the file that .* for: its SHA-256"):
        DP.fromdict(record)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="no model file"):
        DP.fromdict(record)
    assert DP.fromdict(record, model=TINY).parameters["model"] == str(TINY)


def test_models_of_no_file(pair_model):
    record = DP(pair_model).todict()
    assert record["model"] is None
    assert record["provenance"]["sha256"] is None
    with pytest.raises(ValueError, match="name no model file; give one with model="):
        DP.fromdict(record)
    assert DP.fromdict(record, model=pair_model).model is pair_model


@pytest.mark.parametrize("record", [{}, {"asap_cutoff": False}])
def test_parameters_of_other_calculators(record):
    with pytest.raises(ValueError, match="name no model file"):
        DP.fromdict(record)


# Discovery


def test_entry_point():
    (found,) = entry_points(group="ase.plugins", name="dp_calc")
    assert found.value == "dp_calc.ase_plugin"


def test_ase_lists_the_calculator_and_imports_no_torch(tmp_path):
    pytest.importorskip("ase._4.plugins", reason="needs ASE 3.29, which has plugins")
    code = (
        "import sys, ase, ase.io, ase.calculators.calculator\n"
        "from ase._4.plugins import plugins\n"
        "plugin = {p.name: p for p in plugins.calculators}['dp_calc']\n"
        "print(plugin.display(), 'torch' in sys.modules, 'dp_calc.calculator' in "
        "sys.modules)\n"
        "print(plugin.implementation.__qualname__)"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    listed, name = run.stdout.splitlines()
    assert listed.split()[-2:] == ["False", "False"]
    assert version("dp-calc") in listed
    assert name == "DP"
