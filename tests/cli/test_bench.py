import csv
import shutil
from pathlib import Path

import pytest

from dp_calc.bench.sitting import COLUMNS

MODEL = Path(__file__).parents[1] / "data" / "version10.pt"
QUICK = ("--repeats", 2, "--blocks", 2, "--warmups", 0, "--device", "cpu")


@pytest.fixture
def model(tmp_path):
    return shutil.copy(MODEL, tmp_path / "small.v1.pt")


def _read(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    head = [line for line in lines if line.startswith("#")]
    return head, list(csv.DictReader(lines[len(head) :]))


def test_arms_beside_each_other_and_failures_as_rows(dp_calc, model, tmp_path):
    arms = ("dp_calc-auto", "dp_calc-auto:skin=-1")
    table, picture = tmp_path / "table.csv", tmp_path / "picture.png"
    options = ("--arms", *arms, *QUICK, "-o", table, "--plot", picture)
    status, out, _ = dp_calc("bench", "-m", model, "--atoms", 8, *options)
    assert status == 1
    head, (good, bad) = _read(table)
    assert tuple(good) == COLUMNS
    assert [good["model"], good["atoms"], good["arm"]] == ["small", "8", arms[0]]
    # The ideal crystal has 70 neighbours up to 4.37 Å and 16 more at 4.63 Å; rcut is 4.6.
    assert 8 * 70 <= int(good["edges"]) < 8 * 86
    assert 0 < float(good["median_ms"]) <= float(good["p95_ms"])
    assert float(good["first_call_s"]) > 0.1
    assert float(good["full_alloc_gb"]) > 0
    assert good["success"] == "True"
    assert bad["arm"] == arms[1]
    assert bad["success"].startswith("False: ValueError: skin must be a distance")
    assert bad["median_ms"] == bad["edges"] == ""
    assert f"--model small.v1.pt --atoms 8 --arms {arms[0]} {arms[1]}" in head[0]
    assert not any(str(tmp_path) in line for line in table.read_text().splitlines())
    assert any("torch 2." in line for line in head)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "skin must be a distance" in out


def test_a_missing_model_is_a_row_without_its_folder(dp_calc, tmp_path):
    model, table = tmp_path / "nothing.pt", tmp_path / "table.csv"
    status, out, _ = dp_calc("bench", "-m", model, "--atoms", 8, *QUICK, "-o", table)
    assert status == 1
    _, (row,) = _read(table)
    assert row["success"].startswith("False: ")
    assert "nothing.pt" in row["success"]
    assert str(tmp_path) not in table.read_text(encoding="utf-8") + out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--atoms", "100"), "multiple of 8"),
        (("--arms", "fastest"), "no arm 'fastest'"),
        (("--repeats", "3"), "3 repeats cannot be done in 6 blocks"),
        (("-o", "table.txt"), "ending .csv"),
        (("--plot", "nowhere/picture.png"), "no folder"),
    ],
)
def test_what_is_refused_before_anything_starts(
    dp_calc, model, options, reason, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("subprocess.Popen", None)
    status, _, err = dp_calc("bench", "-m", model, *options)
    assert status == 2
    assert reason in err
    assert len(err.splitlines()) == 1
