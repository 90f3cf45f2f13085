"""Parts of the benchmark: arms, structures, counts, tables and processes that fail."""

import csv
import sys

import numpy as np
import pytest
import torch

from dp_calc.bench import sitting
from dp_calc.bench.arms import ARMS, Arm, parse_arm
from dp_calc.bench.carbon import diamond, frames_of, repeats_of
from dp_calc.bench.memory import memory_of
from dp_calc.bench.sitting import COLUMNS, Counts, label_of, measure
from dp_calc.bench.table import describe, write

OPTIONS = {"head": None, "device": "cpu", "dtype": None}
ENVIRONMENT = {"kind": "cpu", "device": "chip", "threads": "2", "versions": "torch 2"}


@pytest.mark.parametrize("name", ARMS)
def test_named_arms(name):
    arm = parse_arm(name)
    assert (arm.name, arm.settings) == (name, ARMS[name])


def test_settings_after_a_name():
    text = "dp_calc-stream:skin=0.5,backward=native,compile=False,cohort_edges=64"
    arm = parse_arm(text)
    assert arm.name == text
    assert arm.settings == {
        **ARMS["dp_calc-stream"],
        "skin": 0.5,
        "backward": "native",
        "compile": False,
        "cohort_edges": 64,
    }
    assert "skin" not in ARMS["dp_calc-stream"]


@pytest.mark.parametrize("text", ["", "auto", "DP_CALC-AUTO", "reference-torch"])
def test_arms_that_do_not_exist(text):
    with pytest.raises(ValueError, match=r"no arm .* dp_calc-auto, dp_calc-torch"):
        parse_arm(text)


@pytest.mark.parametrize("text", ["skin", "skin:0", "=1", "a b=1", "skin=0,,"])
def test_settings_of_another_form(text):
    with pytest.raises(ValueError, match="must end in settings like"):
        parse_arm(f"dp_calc-auto:{text}")


@pytest.mark.parametrize(
    ("n_atoms", "repeats"),
    [
        (8, (1, 1, 1)),
        (96, (2, 2, 3)),
        (1000, (5, 5, 5)),
        (4096, (8, 8, 8)),
        (56, (1, 1, 7)),
        (100_000, (20, 25, 25)),
    ],
)
def test_blocks_of_cells(n_atoms, repeats):
    assert repeats_of(n_atoms) == repeats


@pytest.mark.parametrize("n_atoms", [0, -8, 1, 100])
def test_numbers_of_atoms_that_are_no_block(n_atoms):
    with pytest.raises(ValueError, match="multiple of 8"):
        repeats_of(n_atoms)


def test_frames_are_the_same_every_time():
    atoms = diamond(96)
    assert len(atoms) == 96
    assert atoms.pbc.all()
    frames = frames_of(atoms)
    assert len(frames) == 3
    np.testing.assert_array_equal(frames, frames_of(diamond(96)))
    moved = np.stack(frames) - atoms.positions
    assert 0.018 < moved.std() < 0.022
    assert not np.array_equal(frames[0], frames[1])


def test_blocks_hold_all_repeats():
    assert Counts().per_block == [10] * 6
    assert Counts(repeats=7, blocks=3).per_block == [3, 2, 2]
    for bad in ({"warmups": -1}, {"repeats": 5}, {"blocks": 0}):
        with pytest.raises(ValueError, match="cannot be"):
            Counts(**bad)


def test_models_are_called_by_their_file():
    assert label_of("/some/where/neo.v2.pt") == "neo"
    assert label_of("DPA4-Neo-OMat24-v20260805") == "DPA4-Neo-OMat24-v20260805"


def test_table(tmp_path):
    arm = Arm("dp_calc-auto", {})
    circumstances = describe(ENVIRONMENT, "dp-calc bench", [arm], Counts())
    row = dict.fromkeys(COLUMNS, 1) | {"success": "False: a reason, with a comma"}
    write(tmp_path / "table.csv", circumstances, [row, row])
    lines = (tmp_path / "table.csv").read_text(encoding="utf-8").splitlines()
    head = [line for line in lines if line.startswith("#")]
    assert lines[: len(head)] == head
    assert "# command: dp-calc bench" in head
    rows = list(csv.DictReader(lines[len(head) :]))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 2
    assert rows[0]["success"] == "False: a reason, with a comma"


def test_resident_memory_is_told_apart_from_what_was_there():
    before = torch.ones(20_000_000)
    memory = memory_of(torch.device("cpu"))
    assert memory.allocated() < 0.02
    torch.ones(25_000_000)  # 0.1 GB, gone at once
    assert 0.08 < memory.allocated() < 0.15
    assert len(before) == 20_000_000
    assert memory.reserved() == ""


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("raise SystemExit(3)", "the process ended with the status 3"),
        (
            "import os; os.close(0); print('{}', flush=True); os._exit(4)",
            "the process ended with the status 4",
        ),
        (
            "import os; os.kill(os.getpid(), 9)",
            "the process ended with the status -9",
        ),
        (
            "import json, sys; print(json.dumps({'environment': {}}), flush=True); "
            "sys.stdin.readline(); sys.exit(1)",
            "the process ended with the status 1",
        ),
    ],
)
def test_processes_that_die_are_rows(program, reason, monkeypatch, capfd):
    popen = sitting.subprocess.Popen

    def start(command, **options):
        return popen([sys.executable, "-c", program], **options)

    monkeypatch.setattr(sitting.subprocess, "Popen", start)
    arms, counts = [Arm("dp_calc-auto", {})], Counts(0, 2, 2)
    *steps, (rows, _) = measure("x.pt", 8, arms, counts, OPTIONS)
    assert len(steps) == len(arms) * (1 + counts.blocks)
    assert rows[0]["success"] == f"False: {reason}"
    assert tuple(rows[0]) == COLUMNS


def test_processes_end_with_a_sitting_that_is_broken_off(monkeypatch):
    started = []
    popen = sitting.subprocess.Popen

    def start(command, **options):
        program = "import time; print('{}', flush=True); time.sleep(60)"
        started.append(popen([sys.executable, "-c", program], **options))
        return started[-1]

    monkeypatch.setattr(sitting.subprocess, "Popen", start)
    arms = [Arm("dp_calc-auto", {}), Arm("dp_calc-auto:skin=0", {"skin": 0})]
    steps = measure("x.pt", 8, arms, Counts(), OPTIONS)
    next(steps)
    next(steps)
    steps.close()
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)
