import os
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms

from dp_calc import DP
from dp_calc.cli import frames
from dp_calc.data import water_model

DATA = Path(__file__).parents[1] / "data"


def _molecule(seed=0):
    atoms = molecule("H2O")
    atoms.rattle(0.05, seed=seed)
    return atoms


def _crystal():
    atoms = _molecule(seed=1)
    atoms.cell = [[4.2, 0, 0], [0.3, 4.4, 0], [-0.5, 0.2, 4.6]]
    atoms.pbc = True
    atoms.set_momenta(np.arange(9.0).reshape(3, 3))
    return atoms


def _slab():
    atoms = _crystal()
    atoms.cell[2] *= 3
    atoms.pbc = (True, True, False)
    return atoms


def _bad():
    return Atoms("OHe", positions=[[0, 0, 0], [0, 0, 1]])


@pytest.fixture
def run(dp_calc):
    return lambda structures, *args: dp_calc(
        "evaluate", structures, "-m", water_model(), "--device", "cpu", *args
    )


@pytest.fixture
def structures(tmp_path):
    """Write frames to a file that keeps every digit."""

    def write(*frames, name="in.traj"):
        path = tmp_path / name
        ase.io.write(path, list(frames))
        return path

    return write


def test_table_has_the_calculator_s_numbers(run, structures):
    frames = _molecule(), _crystal()
    status, out, err = run(structures(*frames), "--dtype", "float64")
    assert status == 0, err
    header, *rows = (line.split() for line in out.splitlines())
    assert header[:4] == ["frame", "formula", "atoms", "energy/eV"]
    calc = DP(water_model(), device="cpu", dtype="float64")
    for i, (atoms, row) in enumerate(zip(frames, rows, strict=True)):
        atoms.calc = calc
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        assert row[:3] == [str(i), "H2O", "3"]
        largest = np.linalg.norm(forces, axis=1).max()
        expected = [energy, energy / 3, largest]
        assert np.array(row[3:6], float) == pytest.approx(expected, abs=1e-6)
    assert rows[0][6] == "-"
    pressure = -frames[1].get_stress()[:3].mean() * 160.21766
    assert float(rows[1][6]) == pytest.approx(pressure, abs=1e-4)


def test_progress_is_on_stderr(run, structures):
    _, out, err = run(structures(_molecule(), _molecule(1)))
    assert "2/2" in err
    assert "2/2" not in out


def test_output_holds_every_result_for_ase_to_read(run, structures, tmp_path):
    frames = _molecule(), _crystal(), _slab()
    output = tmp_path / "out.extxyz"
    status, _, err = run(structures(*frames), "-o", output, "--dtype", "float64")
    assert status == 0, err
    calc = DP(water_model(), device="cpu", dtype="float64")
    for atoms, stored in zip(frames, ase.io.read(output, ":"), strict=True):
        calc.calculate(atoms)
        results = stored.calc.results
        assert results["energy"] == results["free_energy"]
        for name in ("energy", "energies", "forces"):
            assert results[name] == pytest.approx(calc.results[name], abs=1e-8)
        # Written in full, with rows and columns in their places.
        assert stored.info["virial"] == pytest.approx(calc.results["virial"], abs=1e-12)
        assert ("stress" in results) == atoms.pbc.any()
        if atoms.pbc.any():
            assert results["stress"] == pytest.approx(calc.results["stress"], abs=1e-12)
        assert stored.positions == pytest.approx(atoms.positions, abs=1e-8)
        assert (stored.pbc == atoms.pbc).all()
        assert stored.get_momenta() == pytest.approx(atoms.get_momenta(), abs=1e-8)


def test_magnetic_forces_of_a_spin_model_are_stored(dp_calc, structures, tmp_path):
    model, output = DATA / "deepspin.pt", tmp_path / "out.extxyz"
    calc = DP(model, device="cpu")
    atoms = Atoms([calc.type_map[0]] * 2, positions=[[0, 0, 0], [0.5, 1.1, 1.7]])
    atoms.arrays["spin"] = np.array([[0.1, 0.7, 1.2], [-0.9, 0.4, 0.3]])
    path = structures(atoms, name="in.extxyz")
    status, _, err = dp_calc("evaluate", path, "-m", model, "-o", output)
    assert status == 0, err
    calc.calculate(atoms)
    expected = calc.results["magnetic_forces"]
    assert np.abs(expected).max() > 1e-6
    assert ase.io.read(output).arrays["magnetic_forces"] == pytest.approx(
        expected, abs=1e-5
    )


def test_failing_frame_is_told_and_the_others_are_kept(run, structures, tmp_path):
    output = tmp_path / "out.extxyz"
    status, out, err = run(structures(_molecule(), _bad(), _molecule(1)), "-o", output)
    assert status == 1
    first, failed, last = out.splitlines()[1:]
    assert failed.split()[:4] == ["1", "HeO", "2", "failed:"]
    assert "He" in failed.partition("failed:")[2]
    assert len(first.split()) == len(last.split()) == 7
    assert err.endswith("dp-calc: 1 of 3 frames failed\n")
    stored = ase.io.read(output, ":")
    assert [frame.calc is None for frame in stored] == [False, True, False]
    assert stored[1].info["error"] in failed


@pytest.mark.parametrize(
    "broken",
    [Atoms(), Atoms("O", positions=[[np.nan, 0, 0]]), Atoms("O", pbc=True)],
    ids=["no atoms", "nan", "no cell"],
)
def test_the_output_can_be_read_whatever_failed(run, structures, tmp_path, broken):
    output = tmp_path / "out.extxyz"
    status, *_ = run(structures(_molecule(), broken, _molecule(1)), "-o", output)
    assert status == 1
    assert [len(frame) for frame in ase.io.read(output, ":")] == [3, len(broken), 3]


def test_results_of_another_calculation_do_not_survive(run, structures, tmp_path):
    output = tmp_path / "out.extxyz"
    frames = _molecule(), _bad()
    for atoms in frames:
        forces = np.ones((len(atoms), 3))
        atoms.calc = SinglePointCalculator(
            atoms, energy=1.0, forces=forces, dipole=[1, 2, 3]
        )
        atoms.info["virial"] = np.eye(3)
        atoms.info["comment"] = "kept"
    path = structures(*frames)
    run(path, "-o", output)
    good, bad = ase.io.read(output, ":")
    assert bad.calc is None
    assert "virial" not in bad.info
    assert "dipole" not in good.calc.results
    assert good.get_potential_energy() < -100
    assert good.info["comment"] == bad.info["comment"] == "kept"


def test_fixed_atoms_keep_their_forces(run, structures, tmp_path):
    atoms = _molecule()
    atoms.set_constraint(FixAtoms([0]))
    output = tmp_path / "out.extxyz"
    run(structures(atoms), "-o", output)
    assert np.linalg.norm(ase.io.read(output).calc.results["forces"][0]) > 0.1


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda d: d / "in.xyz", "would overwrite an input"),
        (lambda d: _link(d / "alias.xyz", d / "in.xyz"), "would overwrite an input"),
        (lambda d: d / "none" / "out.xyz", "there is no folder"),
        (lambda d: d / "out.json", "extended XYZ or a database"),
        (lambda d: _folder(d / "folder.xyz"), "is not a file"),
    ],
    ids=["input", "link to input", "folder missing", "ending", "folder"],
)
def test_bad_output_is_refused_before_anything_runs(
    run, structures, tmp_path, monkeypatch, make, expected
):
    path = structures(_molecule(), name="in.xyz")
    content = path.read_bytes()
    monkeypatch.setattr(frames, "FrameFiles", None)
    status, out, err = run(path, "-o", make(tmp_path))
    assert (status, out) == (2, "")
    assert err.startswith("dp-calc: error: ")
    assert expected in err
    assert path.read_bytes() == content


def test_the_model_is_never_overwritten(dp_calc, structures, tmp_path):
    model = tmp_path / "model.xyz"
    model.write_bytes(b"precious")
    status, _, err = dp_calc(
        "evaluate", structures(_molecule()), "-m", model, "-o", model
    )
    assert status == 2
    assert "would overwrite an input" in err
    assert model.read_bytes() == b"precious"


def test_an_older_output_is_replaced_when_asked_and_only_by_a_complete_one(
    run, structures, tmp_path, monkeypatch
):
    output = tmp_path / "out.xyz"
    output.write_text("older")
    path = structures(_molecule())

    def fail(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        status, _, err = run(path, "-o", output, "--overwrite")
    assert status == 2
    assert "out.xyz.part: No space left on device" in err
    assert output.read_text() == "older"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.traj", "out.xyz"]
    status, out, err = run(path, "-o", output)
    assert (status, out) == (2, "")
    assert "out.xyz exists already; give --resume" in err
    assert output.read_text() == "older"
    assert run(path, "-o", output, "--overwrite")[0] == 0
    assert len(ase.io.read(output)) == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.traj", "out.xyz"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("none.xyz", None, "there is no structure file"),
        ("cut.extxyz", "3\n\nO 0 0 0\n", "Frame has 1 atoms, expected 3"),
        ("noise.dat", "no structure at all", "it fits no known format"),
        ("empty.xyz", "", "Empty file"),
    ],
)
def test_unreadable_structures_get_one_sentence(run, tmp_path, name, content, expected):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    status, out, err = run(path)
    assert (status, out) == (2, "")
    assert err.startswith("dp-calc: error: ")
    assert err.count("\n") == 1
    assert expected in err


def test_device_that_is_not_there(dp_calc, structures):
    path = structures(_molecule())
    status, _, err = dp_calc("evaluate", path, "-m", water_model(), "--device", "cuda:99")
    assert status == 2
    assert "cuda:99" in err


def _link(path, target):
    path.symlink_to(target)
    return path


def _folder(path):
    path.mkdir()
    return path
