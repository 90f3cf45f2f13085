import os
import re
import shlex
import subprocess
import sys
import warnings

import ase.io
import pytest

import dp_calc as package
from dp_calc.cli import info
from dp_calc.data import water_model, water_structure


def _python(*args, **options):
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, timeout=120, **options
    )


def test_module_and_script_are_the_same():
    result = _python("-m", "dp_calc", "--version")
    assert (result.returncode, result.stdout) == (0, f"dp-calc {package.__version__}\n")


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["evaluate", "--help"],
        ["compress", "--help"],
        ["demo", "--steps"],
        ["relax", "--help"],
        ["md", "--help"],
    ],
)
def test_help_and_wrong_usage_import_nothing_heavy(args):
    result = _python("-X", "importtime", "-m", "dp_calc", *args)
    imported = set(re.findall(r"\|\s+(\w+)\S*$", result.stderr, re.MULTILINE))
    assert "argparse" in imported
    assert not imported & {"torch", "triton", "numpy", "ase", "matplotlib", "tqdm"}


def test_a_command_is_required(dp_calc):
    status, _, err = dp_calc()
    assert status == 2
    assert "COMMAND" in err


def test_help_names_every_command(dp_calc):
    status, out, _ = dp_calc("--help")
    assert status == 0
    commands = ("info", "models", "evaluate", "compress", "demo")
    assert all(command in out for command in commands)


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&-"])
def test_a_job_that_was_started_without_streams_runs(tmp_path, streams):
    output = tmp_path / "out.extxyz"
    words = [sys.executable, "-m", "dp_calc", "evaluate", water_structure(), "-m",
             water_model(), "--device", "cpu", "-o", output]  # fmt: skip
    command = f"{shlex.join(map(str, words))} {streams}"
    result = subprocess.run(["sh", "-c", command], capture_output=True, timeout=120)
    assert result.returncode == 0, result.stderr
    (frame,) = ase.io.read(output, ":")
    assert frame.get_potential_energy() < 0


@pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="runs where /dev/full is there (Linux)"
)
def test_a_table_that_cannot_be_written_is_one_line_of_its_own():
    args = ("evaluate", str(water_structure()), "-m", str(water_model()))
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "dp_calc", *args, "--device", "cpu"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("dp-calc: error: ")
    assert "No space left" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "args", [["--version"], ["info", str(water_model())]], ids=["version", "info"]
)
def test_closed_pipe_ends_quietly(args):
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [sys.executable, "-m", "dp_calc", *args],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 141
    assert "Error" not in err
    assert "Traceback" not in err


def test_interruption_is_one_line(dp_calc, monkeypatch):
    monkeypatch.setattr(info, "model_fields", _raise(KeyboardInterrupt()))
    status, _, err = dp_calc("info", water_model())
    assert (status, err) == (130, "dp-calc: interrupted\n")


def test_failed_arithmetic_is_one_line_and_status_1(dp_calc, monkeypatch):
    monkeypatch.setattr(info, "model_fields", _raise(FloatingPointError("not finite")))
    status, _, err = dp_calc("info", water_model())
    assert (status, err) == (1, "dp-calc: error: not finite\n")


def test_an_unexpected_exception_is_not_hidden(dp_calc, monkeypatch):
    monkeypatch.setattr(info, "model_fields", _raise(KeyError("bug")))
    with pytest.raises(KeyError):
        dp_calc("info", water_model())


def test_warnings_are_sentences_and_filters_stay_as_they_were(dp_calc, monkeypatch):
    def warn(calc):
        warnings.warn("look out", stacklevel=1)
        return []

    monkeypatch.setattr(info, "model_fields", warn)
    before = list(warnings.filters), warnings.showwarning
    _, _, err = dp_calc("info", water_model())
    assert err == "dp-calc: warning: look out\n"
    assert (list(warnings.filters), warnings.showwarning) == before


def _raise(error):
    def function(*_):
        raise error

    return function
