"""Outputs of ``dp-calc evaluate``: several inputs, databases, going on, odd content."""

import json
import os
from pathlib import Path

import ase.db
import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule

from dp_calc import DP

DATA = Path(__file__).parents[1] / "data"
MODEL = DATA / "plain.pt"


@pytest.fixture
def run(dp_calc):
    return lambda *args: dp_calc("evaluate", *args, "-m", MODEL, "--device", "cpu")


@pytest.fixture
def inputs(tmp_path):
    """Two files with three and two structures, one of them without results."""
    frames = [molecule(name) for name in ("H2O", "CO2", "H2O", "C2H6", "H2O")]
    for seed, atoms in enumerate(frames):
        atoms.rattle(0.05, seed=seed)
        atoms.info["origin"] = f"number {seed}"
    frames[2].cell, frames[2].pbc = [5, 5, 5], True
    frames[3].numbers[0] = 2
    paths = [tmp_path / "one.traj", tmp_path / "two.extxyz"]
    ase.io.write(paths[0], frames[:3])
    ase.io.write(paths[1], frames[3:])
    return paths


class Stop(KeyboardInterrupt):
    """Stands for Ctrl-C."""


@pytest.fixture
def stopped(run, inputs, tmp_path, monkeypatch):
    """An output that was interrupted after its first two batches of one structure."""
    output, calls, fsync = tmp_path / "out.extxyz", [], os.fsync

    def stop(descriptor):
        calls.append(descriptor)
        if len(calls) == 5:  # file and journal of each batch
            raise Stop
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", stop)
        status, _, err = run(*inputs, "-o", output, "--max-edges", 1)
    assert status == 130
    assert "after 2 of 5 structures, which are kept" in err
    assert not output.exists()
    return output


def test_several_files_keep_their_order_and_are_named(run, inputs, tmp_path):
    output = tmp_path / "out.extxyz"
    status, out, _ = run(*inputs, "-o", output)
    assert status == 1
    labels = [line.split()[0] for line in out.splitlines()[1:]]
    assert labels == [f"one.traj@{i}" for i in range(3)] + [
        f"two.extxyz@{i}" for i in range(2)
    ]
    origins = [frame.info["origin"] for frame in ase.io.read(output, ":")]
    assert origins == [f"number {i}" for i in range(5)]


def test_database_holds_results_and_what_has_no_column(run, inputs, tmp_path):
    output = tmp_path / "out.db"
    assert run(*inputs, "-o", output)[0] == 1
    calc = DP(MODEL, device="cpu")
    frames = [*ase.io.read(inputs[0], ":"), *ase.io.read(inputs[1], ":")]
    with ase.db.connect(output) as database:
        rows = list(database.select())
    assert [row.id for row in rows] == [1, 2, 3, 4, 5]
    for i, (row, atoms) in enumerate(zip(rows, frames, strict=True)):
        assert row.data["info"]["origin"] == f"number {i}"
        np.testing.assert_array_equal(row.numbers, atoms.numbers)
        if i == 3:
            assert "does not know" in row.error
            assert row.get("energy") is None
            continue
        calc.calculate(atoms)
        assert row.energy == pytest.approx(calc.results["energy"], abs=1e-5)
        np.testing.assert_allclose(row.forces, calc.results["forces"], atol=1e-5)
        np.testing.assert_allclose(row.data["virial"], calc.results["virial"], atol=1e-5)
        assert ("stress" in row) == atoms.pbc.any()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "one.traj",
        "out.db",
        "two.extxyz",
    ]


def test_spins_and_magnetic_forces_reach_the_database(dp_calc, tmp_path):
    model, output = DATA / "deepspin.pt", tmp_path / "out.db"
    element = DP(model, device="cpu").type_map[0]
    atoms = Atoms([element] * 2, positions=[[0, 0, 0], [0.5, 1.1, 1.7]])
    atoms.arrays["spin"] = np.array([[0.1, 0.7, 1.2], [-0.9, 0.4, 0.3]])
    ase.io.write(tmp_path / "in.extxyz", atoms)
    status, _, err = dp_calc(
        "evaluate", tmp_path / "in.extxyz", "-m", model, "-o", output
    )
    assert status == 0, err
    with ase.db.connect(output) as database:
        data = database.get(1).data
    np.testing.assert_array_equal(data["arrays"]["spin"], atoms.arrays["spin"])
    assert np.abs(data["magnetic_forces"]).max() > 1e-6


def test_an_unfinished_output_is_not_touched_unasked(run, inputs, stopped):
    part = Path(f"{stopped}.part")
    content = part.read_bytes()
    assert len(ase.io.read(part, ":", format="extxyz")) >= 2
    status, out, err = run(*inputs, "-o", stopped)
    assert (status, out) == (2, "")
    assert "out.extxyz.part exists already; give --resume" in err
    assert part.read_bytes() == content


def test_resuming_goes_on_and_then_there_is_nothing_to_do(run, inputs, stopped):
    status, out, err = run(*inputs, "-o", stopped, "--resume", "--max-edges", 1)
    assert status == 1
    assert out.splitlines()[1].split()[0] == "one.traj@2"
    assert "1 of 5 frames failed" in err
    whole = stopped.with_name("whole.extxyz")
    assert run(*inputs, "-o", whole, "--resume", "--max-edges", 1)[0] == 1
    assert stopped.read_bytes() == whole.read_bytes()
    status, out, err = run(*inputs, "-o", stopped, "--resume")
    assert (status, out) == (0, "")
    assert "is complete already; nothing was run" in err
    assert stopped.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda inputs: inputs.reverse(), "another structures"),
        (lambda inputs: inputs.extend(["--dtype", "float64"]), "another dtype"),
        (lambda inputs: inputs.extend(["--max-edges", "2"]), "another max-edges"),
    ],
    ids=["structures", "dtype", "max-edges"],
)
def test_another_run_is_not_mixed_in(run, inputs, stopped, change, expected):
    content = Path(f"{stopped}.part").read_bytes()
    change(inputs)
    last = [] if "--max-edges" in inputs else ["--max-edges", "1"]
    status, _, err = run(*inputs, *last, "-o", stopped, "--resume")
    assert status == 2
    assert f"was begun with {expected};" in err
    assert Path(f"{stopped}.part").read_bytes() == content


def test_overwriting_begins_anew(run, inputs, stopped):
    assert run(inputs[0], "-o", stopped, "--overwrite")[0] == 0
    assert len(ase.io.read(stopped, ":")) == 3
    assert not Path(f"{stopped}.part").exists()


def test_a_lost_journal_is_told(run, inputs, stopped):
    Path(f"{stopped}.journal").unlink()
    status, _, err = run(*inputs, "-o", stopped, "--resume")
    assert status == 2
    assert "cannot be continued without" in err
    assert Path(f"{stopped}.part").exists()


@pytest.mark.parametrize("resume", [[], ["--resume"]])
@pytest.mark.parametrize("name", ["mine.extxyz.part", "mine.extxyz.journal"])
def test_a_file_that_only_has_such_a_name_is_not_touched(
    run, inputs, tmp_path, name, resume
):
    mine = tmp_path / name
    mine.write_text("my own notes\n")
    status, out, err = run(inputs[0], "-o", tmp_path / "mine.extxyz", *resume)
    assert (status, out) == (2, "")
    assert name in err
    assert "--overwrite" in err
    assert mine.read_text() == "my own notes\n"


def test_a_run_that_was_stopped_before_its_first_batch_begins_again(run, inputs, stopped):
    journal = Path(f"{stopped}.journal")
    journal.write_text(journal.read_text().splitlines(keepends=True)[0])
    assert run(inputs[0], "-o", stopped)[0] == 0
    assert len(ase.io.read(stopped, ":")) == 3


def test_the_journal_tells_what_is_whole(stopped):
    first, *marks = map(json.loads, Path(f"{stopped}.journal").read_text().splitlines())
    assert set(first["run"]) > {"structures", "model", "head", "dtype"}
    assert [mark["frames"] for mark in marks] == [1, 2]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--resume"], "name it by -o"),
        (["--overwrite"], "name it by -o"),
        (["--max-edges", "0"], "--max-edges must be at least 1, not 0"),
        (["-o", "one.extxyz"], "out.extxyz.part is not a file"),
    ],
)
def test_wrong_options_get_one_sentence(
    run, inputs, tmp_path, monkeypatch, options, expected
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.extxyz.part").mkdir()
    status, out, err = run(*inputs, *options)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert expected.replace("out.", "one.") in err


def test_an_unfinished_output_as_input_is_not_overwritten(run, inputs, stopped):
    part = Path(f"{stopped}.part")
    content = part.read_bytes()
    status, _, err = run(part, "-o", stopped, "--overwrite")
    assert status == 2
    assert "would overwrite an input" in err
    assert part.read_bytes() == content


def test_what_the_format_cannot_hold_is_left_out_with_a_warning(run, tmp_path):
    atoms = molecule("H2O")
    atoms.info.update(note="two\nlines", kept=1.5, nested={"a": [1, 2]})
    atoms.info["array"] = np.arange(3.0)
    ase.io.write(tmp_path / "in.traj", [atoms, molecule("CO2")])
    for ending in (".extxyz", ".db"):
        output = tmp_path / f"out{ending}"
        status, _, err = run(tmp_path / "in.traj", "-o", output)
        assert status == 0, err
        assert ("'note' cannot be written" in err) == (ending == ".extxyz")
        frames = ase.io.read(output, ":")
        assert [len(frame) for frame in frames] == [3, 3]
    assert ase.io.read(tmp_path / "out.extxyz", 0).info["kept"] == 1.5


def test_a_file_that_ends_early_is_refused_before_anything_runs(run, inputs, tmp_path):
    broken = tmp_path / "broken.xyz"
    broken.write_text("1\n\nH 0 0 0\n3\n\nO 0 0 0\n")
    status, out, err = run(*inputs, broken, "-o", tmp_path / "out.extxyz")
    assert (status, out) == (2, "")
    assert "ASE cannot read structures from" in err
    assert not list(tmp_path.glob("out*"))
