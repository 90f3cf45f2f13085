import re
import subprocess
import sys
from pathlib import Path

import ase.io
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(tmp_path):
    """Run an example in an empty folder and give what it printed."""

    def run(name, *args):
        result = subprocess.run(
            [sys.executable, EXAMPLES / name, *args],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


def test_single_point(run):
    out = run("01_single_point.py")
    assert float(re.search(r"energy +(\S+) eV", out)[1]) == pytest.approx(
        -29943.88, abs=0.01
    )
    assert float(re.search(r"pressure +(\S+) GPa", out)[1]) == pytest.approx(
        -0.032, abs=1e-3
    )


def test_md_water(run, tmp_path):
    out = run("02_md_water.py", "4")
    assert out.endswith("5 frames in water_md.traj\n")
    frames = ase.io.read(tmp_path / "water_md.traj", ":")
    assert all(200 < frame.get_temperature() < 450 for frame in frames)
    assert len({frame.get_potential_energy() for frame in frames}) == 5


def test_relax_cell(run, tmp_path):
    out = run("03_relax_cell.py")
    before, after = (
        [float(x) for x in re.findall(r"(-?\d+\.\d+) (?:eV|GPa|kg)", line)]
        for line in out.splitlines()[:2]
    )
    assert before[2] > 1.5
    assert after[0] < before[0] - 0.03
    assert after[1] < 0.005
    assert after[2] == pytest.approx(0.1, abs=0.02)
    assert after[3] == pytest.approx(958.3, abs=2)
    assert not list(tmp_path.iterdir())


def test_many_structures(run):
    out = run("04_many_structures.py", "20")
    assert out.startswith("24 structures in ")
    assert float(re.search(r"snapshots (\S+) eV", out)[1]) == pytest.approx(
        -467.53, abs=0.01
    )
    assert "cell with stress: True, molecule: False\n" in out
    assert "1 failed: ValueError: the structure contains He, which" in out


def test_hessian_vibrations(run, tmp_path):
    out = run("05_hessian_vibrations.py")
    rows = re.findall(r"^ +(\d) +([\d.]+)i? +([\d.]+)i? *$", out, re.MULTILINE)
    assert [int(mode) for mode, *_ in rows] == list(range(9))
    both = [(float(a), float(b)) for _, a, b in rows]
    assert all(max(pair) < 5 for pair in both[:6])
    expected = (1474.09, 3960.49, 3990.29)
    for pair, frequency in zip(both[6:], expected, strict=True):
        assert pair == pytest.approx((frequency, frequency), abs=0.02)
    assert float(re.search(r"the vibrations: (\S+) 1/cm", out)[1]) < 1e-4
    assert not list(tmp_path.iterdir())


def test_choose_kernels(run, tmp_path):
    out = run("06_choose_kernels.py")
    energies = re.findall(r": \d+ ms, (\S+) eV$", out, re.MULTILINE)
    assert len(energies) >= 5
    assert all(float(e) == pytest.approx(-8412.068, abs=2e-3) for e in energies)
    assert float(re.search(r"agree within (\S+) eV per atom", out)[1]) < 1e-5
    assert len(re.findall(r"^  milliseconds: checks .* model", out, re.MULTILINE)) >= 5
    assert 'refused: kernels="triton" cannot be had: ' in out
    assert not list(tmp_path.iterdir())


def test_every_example_is_run_here():
    names = re.findall(r'run\("(\d\d_\w+\.py)"', Path(__file__).read_text())
    assert sorted(names) == sorted(path.name for path in EXAMPLES.glob("*.py"))
