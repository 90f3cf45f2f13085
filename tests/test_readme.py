import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from importlib.metadata import version
from io import StringIO
from pathlib import Path

import pytest
from ase.io import read

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d+\.\d+")


def _block(language):
    return re.search(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[1]


def test_example_prints_the_numbers_that_are_shown():
    with redirect_stdout(StringIO()) as printed:
        exec(compile(_block("python"), "README.md", "exec"), {})
    shown, printed = _block("text"), printed.getvalue()
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    for ours, text in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        # The last digit may differ: float32 sums depend on the processor.
        unit = 10.0 ** -len(text.partition(".")[2])
        assert float(ours) == pytest.approx(float(text), abs=1.01 * unit)


def test_first_steps_work_as_they_are_written(tmp_path):
    steps = README.partition("## First steps")[2].partition("\n## ")[0]
    commands = re.findall(r"^dp-calc .*", steps, re.MULTILINE)
    assert len(commands) == 3
    for folder in ("dp_calc", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in commands:
        run = subprocess.run(
            shlex.split(command),
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert run.returncode == 0, run.stderr
    assert read(tmp_path / "energy.extxyz").get_potential_energy() < -29943
    assert len(read(tmp_path / "water.traj", ":")) == 3
    before = read(ROOT / "tests/data/ice.extxyz").get_volume()
    assert read(tmp_path / "ice.extxyz").get_volume() < 0.95 * before


def test_first_screen_is_short():
    first_screen = README.partition("## Layout")[0]
    assert len(first_screen.splitlines()) <= 45
    assert "make demo" in first_screen
    assert "make test" in first_screen


def test_every_path_of_the_layout_exists():
    table = README.partition("## Layout")[2].partition("\n## ")[0]
    for row in re.findall(r"^\| (`.*?) \| (.*) \|$", table, re.MULTILINE):
        folders = re.findall(r"`([\w/]+/)`", row[0])
        assert all((ROOT / folder).is_dir() for folder in folders)
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", row[1]):
            assert (ROOT / folders[0] / name).exists(), name


def test_links_to_files_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", README)
    local = [link for link in links if not link.startswith("https://")]
    assert local
    assert all((ROOT / link).is_file() for link in local)


def test_citation_file_names_this_version_and_the_papers():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {version('dp-calc')}\n" in text
    assert "arXiv:2606.02419" in text
    for doi in re.findall(r"https://doi\.org/(\S+?)\)", README):
        assert f"doi: {doi}\n" in text
