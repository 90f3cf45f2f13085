import inspect
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from dp_calc import DP, Settings
from dp_calc.environment import _MEANING, _THREADS

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "examples" / "docs").glob("*.md"))
FROM_DEEPMD_KIT = ROOT / "examples" / "docs" / "from_deepmd_kit.md"
CHANGELOG = ROOT / "dp_calc" / "CHANGELOG.md"


def _read(path):
    return path.read_text(encoding="utf-8")


def test_the_readme_leads_to_every_page():
    readme = _read(ROOT / "README.md")
    for page in [*PAGES, CHANGELOG]:
        assert f"]({page.relative_to(ROOT).as_posix()})" in readme, page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_to_files_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)\)", _read(page))
    assert all((page.parent / link).exists() for link in links if "://" not in link)


def test_every_argument_is_explained_to_those_who_come_from_deepmd_kit():
    table = _read(FROM_DEEPMD_KIT).partition("## Arguments")[2].partition("\n## ")[0]
    arguments = [name for name in inspect.signature(DP).parameters if name != "settings"]
    for name in [*arguments, *Settings.names()]:
        assert f"`{name}`" in table, name


def test_every_environment_variable_is_explained_with_its_values():
    table = _read(FROM_DEEPMD_KIT).partition("## Environment variables")[2]
    for variable, meaning in _MEANING.items():
        row = re.search(rf"^\| `{variable}` \| (.*) \|$", table, re.MULTILINE)[1]
        assert set(meaning) <= set(re.findall(r"\b\d\b", row)), variable
        for settings in meaning.values():
            for name, value in settings.items():
                shown = f'"{value}"' if isinstance(value, str) else value
                assert f"`{name}={shown}`" in row, variable
    assert all(f"`{name}`" in table for name in _THREADS)


def test_every_result_is_explained_to_those_who_come_from_deepmd_kit():
    text = _read(FROM_DEEPMD_KIT)
    for name in [*DP.implemented_properties, "magnetic_forces", "energy_std"]:
        assert f"`{name}`" in text, name


def test_the_program_for_several_devices_runs(tmp_path):
    page = ROOT / "examples" / "docs" / "gpus.md"
    program = re.search(r"^```python\n(.*?)^```", _read(page), re.MULTILINE | re.DOTALL)
    script = tmp_path / "several.py"
    script.write_text(program[1], encoding="utf-8")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    energies = [float(x) for x in re.findall(r"-\d+\.\d+", run.stdout)]
    assert energies == pytest.approx([-467.729] * 8, abs=2e-3)


def test_the_changelog_begins_with_this_version():
    newest = re.search(r"^## (\S+)", _read(CHANGELOG), re.MULTILINE)[1]
    assert newest == version("dp-calc")
