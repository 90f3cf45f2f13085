import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dp_calc.data import water_model
from dp_calc.installation import InstallationError, explain

ROOT = Path(__file__).parents[1]
WITHOUT = (
    "import sys; sys.modules[{package!r}] = None; "
    "from dp_calc.cli import main; sys.exit(main(['info', {model!r}]))"
)


def _run(*arguments, folder):
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("package", "sentence"),
    [("torch", "PyTorch is not installed"), ("vesin", 'needs; "pip install vesin"')],
)
def test_a_missing_package_gets_a_sentence(package, sentence, tmp_path):
    code = WITHOUT.format(package=package, model=str(water_model()))
    run = _run("-c", code, folder=tmp_path)
    assert run.returncode == 2
    assert sentence in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [("-S", "-c", "from dp_calc import DP"), ("-S", "-m", "dp_calc", "info", "x.pt")],
)
def test_a_clone_that_is_not_installed_gets_a_sentence(arguments, tmp_path):
    skip = shutil.ignore_patterns("__pycache__", "*.pt")
    shutil.copytree(ROOT / "dp_calc", tmp_path / "dp_calc", ignore=skip)
    run = _run(*arguments, folder=tmp_path)
    assert run.returncode != 0
    assert 'run "pip install -e ."' in run.stderr.splitlines()[-1]


def test_other_errors_of_imports_stay_as_they_are():
    for error in (
        ImportError("cannot import name 'x' from 'dp_calc.y'", name="dp_calc.y"),
        ModuleNotFoundError("No module named 'dp_calc.y'", name="dp_calc.y"),
    ):
        explain(error)
    missing = ModuleNotFoundError("No module named 'scipy.z'", name="scipy.z")
    with pytest.raises(InstallationError, match=r"^scipy is not installed"):
        explain(missing)
