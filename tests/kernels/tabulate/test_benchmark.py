"""The benchmark script of the operators."""

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[3] / "examples" / "benchmarks" / "tabulate.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("benchmark_tabulate", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(tmp_path, *arguments):
    out = tmp_path / "result.csv"
    command = [sys.executable, str(SCRIPT), "--out", str(out), *arguments]
    return subprocess.run(command, capture_output=True, text=True), out


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_without_a_gpu_it_says_so(tmp_path):
    process, out = run(tmp_path)
    assert process.returncode == 1
    assert process.stderr.strip() == "this benchmark needs a CUDA device"
    assert not out.exists()


def test_a_failure_is_a_row(script):
    def fail():
        raise torch.OutOfMemoryError("CUDA out of memory")

    assert script.attempt(fail) == {"status": "out of memory"}
    assert script.attempt(lambda: {"peak_mib": 1}) == {"peak_mib": 1, "status": "ok"}


def test_pairs_of_the_three_body_operators(script):
    assert script.split(120) == (12, 10)
    assert script.split(7) == (7, 1)


@pytest.mark.gpu
def test_every_row_is_written(tmp_path, cuda):
    process, out = run(
        tmp_path, "--atoms", "1", "3", "--neighbors", "6", "--channels", "5"
    )
    assert process.returncode == 0, process.stderr
    lines = out.read_text().splitlines()
    assert [line.startswith("#") for line in lines[:4]] == [True, True, True, False]
    assert str(tmp_path) not in out.read_text()
    rows = list(csv.DictReader(lines[3:]))
    assert len(rows) == 2 * 5 * 2 * 3
    assert {row["status"] for row in rows} == {"ok"}
    assert all(float(row["milliseconds"]) > 0 for row in rows)
