"""``dp-calc evaluate`` stopped at random moments by real signals."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import ase.db
import ase.io
import numpy as np
import pytest
from ase.build import molecule

MODEL = Path(__file__).parents[1] / "data" / "plain.pt"
N_FRAMES = 45


@pytest.fixture(scope="module")
def structures(tmp_path_factory):
    frames = []
    for seed in range(N_FRAMES):
        atoms = molecule(("H2O", "CO2", "C2H6")[seed % 3])
        atoms.rattle(0.05, seed=seed)
        if seed % 2:
            atoms.cell, atoms.pbc = [5.0, 5.5, 6.0], (True, True, seed % 4 == 1)
        if seed % 17 == 5:
            atoms.numbers[0] = 2  # which the model does not know
        frames.append(atoms)
    path = tmp_path_factory.mktemp("in") / "in.traj"
    ase.io.write(path, frames)
    return path


@pytest.fixture(scope="module")
def uninterrupted(structures, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")

    def run(ending):
        output = folder / f"out{ending}"
        if not output.exists():
            process = _start(structures, output)
            assert process.wait(60) == 1
        return output

    return run


def _start(structures, output, *options):
    # Batches of few structures, so that there are many moments between them.
    command = [sys.executable, "-m", "dp_calc", "evaluate", structures, "-m", MODEL]
    command += ["-o", output, "--max-edges", "150", "--device", "cpu", *options]
    return subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def _stop_when(process, part, size, delay, number):
    """Send a signal some time after the unfinished output has reached a size."""
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if part.exists() and part.stat().st_size > size:
            time.sleep(delay)
            break
        time.sleep(0.001)
    process.send_signal(number)
    process.wait(30)


def _rows(output):
    """What an output holds, without what differs from run to run by intention."""
    if output.suffix == ".extxyz":
        return output.read_bytes()
    with ase.db.connect(output) as database:
        return [
            (
                row.id,
                row.numbers.tolist(),
                row.positions.tolist(),
                row.get("energy"),
                np.asarray(row.get("forces", [])).tolist(),
                row.key_value_pairs,
                np.asarray(row.data.get("virial", [])).tolist(),
            )
            for row in database.select()
        ]


@pytest.mark.parametrize("ending", [".extxyz", ".db"])
def test_stops_change_nothing(structures, uninterrupted, tmp_path, ending):
    expected = uninterrupted(ending)
    whole = expected.stat().st_size
    output, part = tmp_path / f"out{ending}", tmp_path / f"out{ending}.part"
    journal = tmp_path / f"out{ending}.journal"
    randomly = random.Random(ending)
    kept, n_stopped = 0, 0
    for stop in range(12):
        if stop >= 4 and kept:  # on a busy machine the first stops may come too early
            break
        number = (signal.SIGKILL, signal.SIGINT)[stop % 2]
        process = _start(structures, output, "--resume")
        size = part.stat().st_size if part.exists() else 0
        # Until something is kept, ever longer: a busy machine takes its time.
        delay = randomly.random() * 0.03 * (1 if kept else 2**stop)
        _stop_when(process, part, size + whole // 20, delay, number)
        if output.exists():
            break
        n_stopped += 1
        if number == signal.SIGINT:
            assert process.returncode == 130, process.stderr.read()
        mark = _last_mark(journal)
        assert mark["frames"] >= kept
        kept = mark["frames"]
        if ending == ".extxyz":
            assert _rows(expected).startswith(part.read_bytes()[: mark["size"]])
    assert n_stopped >= 3
    assert kept > 0
    process = _start(structures, output, "--resume")
    assert process.wait(60) == 1
    assert _rows(output) == _rows(expected)
    assert [path.name for path in tmp_path.iterdir()] == [output.name]


def _last_mark(journal):
    """Where the last whole batch ended, if any was finished."""
    lines = journal.read_text().splitlines(keepends=True) if journal.exists() else []
    marks = [json.loads(line) for line in lines[1:] if line.endswith("\n")]
    return marks[-1] if marks else {"frames": 0, "size": 0}


def test_a_torn_end_is_cut_off_and_a_lost_one_is_told(
    structures, uninterrupted, tmp_path
):
    expected = uninterrupted(".extxyz").read_bytes()
    output, part = tmp_path / "out.extxyz", tmp_path / "out.extxyz.part"
    process = _start(structures, output)
    _stop_when(process, part, len(expected) // 3, 0, signal.SIGKILL)
    content = part.read_bytes()
    part.write_bytes(content[:10])
    process = _start(structures, output, "--resume")
    assert process.wait(60) == 2
    assert b"is shorter than its journal says" in process.stderr.read()
    assert part.read_bytes() == content[:10]
    part.write_bytes(content + b"3\nProperties=species:S:1:pos:R:3 ener")
    with (tmp_path / "out.extxyz.journal").open("ab") as file:
        file.write(b'{"frames": 4')
    assert _start(structures, output, "--resume").wait(60) == 1
    assert output.read_bytes() == expected


def test_two_at_once_do_not_mix(structures, tmp_path):
    output, part = tmp_path / "out.extxyz", tmp_path / "out.extxyz.part"
    first = _start(structures, output)
    while first.poll() is None and not part.exists():
        time.sleep(0.001)
    first.send_signal(signal.SIGSTOP)
    second = _start(structures, output, "--overwrite")
    assert second.wait(60) == 2
    assert b"another dp-calc is writing" in second.stderr.read()
    first.send_signal(signal.SIGCONT)
    assert first.wait(60) == 1
    assert len(ase.io.read(output, ":")) == N_FRAMES
