"""Molecular dynamics that goes on: the same numbers, and what is not resumed."""

import resource

import ase.io
import numpy as np
import pytest
import torch

from dp_calc.cli.checkpoint import Checkpoint
from dp_calc.data import water_model

from .md_cases import ENSEMBLES, water


@pytest.mark.parametrize(
    ("ensemble", "name"),
    [*((e, "md.traj") for e in ENSEMBLES), ("langevin", "md.extxyz")],
)
def test_pieces_equal_the_whole(run_md, water_file, tmp_path, ensemble, name):
    args = ("--ensemble", ensemble, *ENSEMBLES[ensemble], "--every", 3, "--seed", 7)
    path = water_file()
    assert run_md(path, *args, "--steps", 14, out=f"whole-{name}")[0] == 0
    assert run_md(path, *args, "--steps", 4, out=name)[0] == 0
    # The same command goes on, even if what was chosen is left out.
    assert run_md(path, "--steps", 9, "--resume", out=name)[0] == 0
    status, _, err = run_md(path, *args, "--steps", 14, "--resume", out=name)
    assert status == 0, err
    for suffix in (name.rpartition(".")[2], "csv"):
        whole = tmp_path / f"whole-{name}"
        pieces = (tmp_path / name).with_suffix(f".{suffix}").read_bytes()
        assert pieces == whole.with_suffix(f".{suffix}").read_bytes()
    assert len(ase.io.read(tmp_path / name, ":")) == 5


def test_a_seed_of_its_own_is_shown_and_kept(run_md, water_file, tmp_path):
    path = water_file()
    args = ("--ensemble", "langevin", "--temperature-k", 300)
    _, first, _ = run_md(path, *args, "--steps", 1)
    _, second, _ = run_md(path, *args, "--steps", 2, "--resume")
    seed = first.partition("seed ")[2].split()[0]
    assert seed == second.partition("seed ")[2].split()[0]


def test_resume_without_anything_to_resume_starts(run_md, water_file, tmp_path):
    assert run_md(water_file(), "--steps", 2, "--resume")[0] == 0
    assert (tmp_path / "md.checkpoint").is_file()


@pytest.fixture
def half(run_md, water_file, tmp_path):
    """A run of four steps, with frames at every step."""
    path = water_file()
    assert run_md(path, "--steps", 4, "--every", 1)[0] == 0
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
def test_another_run_is_not_resumed(run_md, half, tmp_path, args, expected):
    before = (tmp_path / "md.traj").read_bytes()
    status, _, err = run_md(half, "--steps", 8, *args, "--resume")
    assert status == 2
    assert expected in err
    assert (tmp_path / "md.traj").read_bytes() == before


def test_another_structure_or_model_is_not_resumed(dp_calc, run_md, half, tmp_path):
    ase.io.write(tmp_path / "other.traj", water(pbc=False))
    status, _, err = run_md(tmp_path / "other.traj", "--steps", 8, "--resume")
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
def test_files_that_are_not_those_of_the_checkpoint(run_md, half, tmp_path, name, change):
    path = tmp_path / name
    content = path.read_bytes()
    other = {"shorter": content[:-1], "other": b"x" * 2 * len(content)}
    path.unlink() if change == "gone" else path.write_bytes(other[change])
    status, _, err = run_md(half, "--steps", 8, "--resume")
    assert status == 2
    assert f"{name} is not the file that the checkpoint belongs to" in err
    if change == "other":
        assert path.read_bytes() == other["other"]


@pytest.mark.parametrize("name", ["md.extxyz", "md.traj"])
def test_notes_of_any_kind_in_the_file_do_not_stop_the_run(run_md, water_file, name):
    atoms = water()
    atoms.info.update({1: 2, "nested": {"a": [1]}, "no": None})
    atoms.arrays["objects"] = np.array([None, "a", 1], dtype=object)
    path = water_file(atoms, "notes.traj")
    for steps in (1, 2):
        status, _, err = run_md(
            path, "--steps", steps, "--every", 1, "--resume", out=name
        )
        assert status == 0, err


def test_a_missing_table_costs_no_frame(run_md, half, tmp_path):
    (tmp_path / "md.csv").unlink()
    frames = tmp_path / "md.traj"
    with ase.io.Trajectory(frames, "a") as writer:
        writer.write(water())
    before = frames.read_bytes()
    status, out, err = run_md(half, "--steps", 8, "--resume")
    assert (status, out) == (2, "")
    assert "md.csv is not the file that the checkpoint belongs to" in err
    assert frames.read_bytes() == before


def test_a_checkpoint_with_any_flipped_byte_is_read_or_called_damaged(
    run_md, half, tmp_path
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
def test_damaged_checkpoints_are_refused(run_md, half, tmp_path, content):
    path = tmp_path / "md.checkpoint"
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    status, _, err = run_md(half, "--steps", 8, "--resume")
    assert status == 2
    assert "damaged" in err


def test_other_circumstances_are_told(run_md, half, monkeypatch):
    import dp_calc.cli.resume as resume

    now = resume.circumstances
    monkeypatch.setattr(resume, "circumstances", lambda c: {**now(c), "device": "cuda:7"})
    status, _, err = run_md(half, "--steps", 5, "--resume")
    assert status == 0, err
    assert "warning: device is cuda:7 (was cpu)" in err


def test_a_run_that_another_process_holds_is_refused(run_md, half, tmp_path):
    fcntl = pytest.importorskip("fcntl", reason="runs where files can be locked (POSIX)")
    with (tmp_path / "md.traj").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        status, _, err = run_md(half, "--steps", 8, "--resume")
    assert status == 2
    assert "another dp-calc is writing" in err
    assert run_md(half, "--steps", 8, "--resume")[0] == 0


def test_a_full_disk_loses_nothing(run_md, water_file, tmp_path):
    path = water_file()
    args = ("--steps", 30, "--every", 1, "--save-every", 4)
    assert run_md(path, *args, out="whole.traj")[0] == 0
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, limits[1]))
    try:
        status, _, err = run_md(path, *args)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 2
    assert "the same command with --resume goes on" in err
    assert run_md(path, *args, "--resume")[0] == 0
    for suffix in (".traj", ".csv"):
        whole = (tmp_path / "whole.traj").with_suffix(suffix).read_bytes()
        assert (tmp_path / "md.traj").with_suffix(suffix).read_bytes() == whole
