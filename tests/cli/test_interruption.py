import json
import signal
import subprocess
import sys
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase.build import molecule

from dp_calc.data import water_model

SCRIPT = Path(__file__).with_name("interrupted.py")
STEPS = 45

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="runs where processes can be forked (POSIX)"
)


@pytest.fixture
def water(tmp_path):
    atoms = molecule("H2O")
    atoms.rattle(0.03, seed=1)
    atoms.set_cell([4.3, 4.4, 4.6])
    atoms.pbc = True
    ase.io.write(tmp_path / "in.traj", atoms)
    return tmp_path / "in.traj"


@pytest.mark.parametrize(
    ("ensemble", "times", "ending"),
    [("nve", 6, "traj"), ("langevin", 4, "extxyz"), ("npt", 4, "traj")],
)
def test_interrupted_at_random_moments(dp_calc, water, tmp_path, ensemble, times, ending):
    args = ["md", water, "-m", water_model(), "--device", "cpu", "--steps", STEPS]
    args += ["--every", 1, "--save-every", 7, "--seed", 3, "--temperature-k", 300]
    args += [
        "--ensemble",
        ensemble,
        *(["--pressure-gpa", 0] if ensemble == "npt" else []),
    ]
    whole = tmp_path / f"whole.{ending}"
    assert dp_calc(*args, "-o", whole)[0] == 0
    # A new seed each time: what fails for one of them is still a fault.
    seed = int(np.random.default_rng().integers(2**31))
    resumed = tmp_path / f"resumed.{ending}"
    command = [*args, "-o", resumed, "--resume"]
    result = subprocess.run(
        [sys.executable, SCRIPT, *map(str, [times, seed, STEPS, *command])],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, f"seed {seed}: {result.stderr}"
    lines = [json.loads(x) for x in result.stdout.splitlines() if x.startswith("{")]
    assert len(lines) == times
    for line in lines:
        # The last moment may come after the end.
        expected = {signal.SIGKILL: -9, signal.SIGINT: 130}[line["signal"]]
        assert line["status"] in (expected, 0), f"seed {seed}: {line}"
        # A row is written before its frame.
        assert line["frames"] >= line["row"] - 1, f"seed {seed}: {line}"
    assert sum(line["status"] != 0 for line in lines) >= times - 2, (
        f"seed {seed}: {lines}"
    )
    for suffix in (f".{ending}", ".csv"):
        ours = resumed.with_suffix(suffix).read_bytes()
        assert ours == whole.with_suffix(suffix).read_bytes(), f"seed {seed}"
    left = {path.name for path in tmp_path.iterdir() if path.stem.startswith(".")}
    assert not left, f"seed {seed}: {left}"
