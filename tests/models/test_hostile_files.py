"""Files that cannot be used, and the one sentence that each of them gets.

``python tests/models/test_hostile_files.py`` prints the table.
"""

import os
import random
import re
import tempfile
from pathlib import Path

import hostile_contents  # noqa: F401 (registers its cases)
import hostile_files  # noqa: F401 (registers its cases)
import pytest
import torch
from checkpoints import Content
from dp_calc.models import load_model
from hostile import CASES
from reference import DATA, evaluate, structures


def error_of(name, folder):
    """Make the file of a case and give the error that loading it raises."""
    path = folder / CASES[name].filename
    CASES[name].make(path)
    try:
        load_model(path)
    except (ValueError, OSError) as error:
        return error
    raise AssertionError(f"{name} was loaded")


@pytest.mark.parametrize("name", CASES)
def test_every_file_gets_one_sentence(name, tmp_path, recwarn):
    error = error_of(name, tmp_path)
    message = str(error)
    assert type(error) is CASES[name].error
    assert re.search(CASES[name].sentence, message)
    assert message.count(CASES[name].filename) == 1
    assert "\n" not in message
    assert len(message) - len(str(tmp_path)) < 320
    # No other error is shown before or after it.
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    # PyTorch 2.11 warns of every sparse tensor.
    assert not [w for w in recwarn if "Sparse invariant" not in str(w.message)]


@pytest.mark.parametrize("name", [name for name in CASES if "runs_code" in name])
def test_nothing_in_a_file_is_run(name, tmp_path):
    path = tmp_path / CASES[name].filename
    CASES[name].make(path)
    with pytest.raises(ValueError, match="nothing in it was run"):
        load_model(path)
    assert not list(tmp_path.glob("*.canary"))


def test_the_canary_of_these_files_is_alive(tmp_path):
    """Without protection the same files do run their command."""
    path = tmp_path / "model.pt"
    CASES["checkpoint_that_runs_code"].make(path)
    torch.load(path, weights_only=False)
    assert list(tmp_path.glob("*.canary"))


def test_tensors_of_a_gpu_are_read_to_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:7")
    path = Content().save(tmp_path / "cuda.pt")
    monkeypatch.undo()
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA device"):
            torch.load(path, weights_only=True)
    model = load_model(path, dtype=torch.float64)
    assert model.device == torch.device("cpu")
    structure = structures("zero_block")[2]
    difference = evaluate(model, structure).energies - structure.expected["energies"]
    assert abs(difference).max() < 1e-9


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0,
    reason="run as a user to whom file permissions apply",
)
def test_a_file_without_permission_says_so(tmp_path):
    path = Content().save(tmp_path / "mine.pt")
    path.chmod(0)
    with pytest.raises(PermissionError, match=r"mine\.pt"):
        load_model(path)


@pytest.mark.parametrize("model", [None, 3, b"model.pt", [DATA / "plain.pt"], torch.nn])
def test_what_is_no_path_is_told(model):
    with pytest.raises(ValueError, match="a model is given by a path or a name, not by"):
        load_model(model)


@pytest.mark.parametrize("older_layout", [False, True])
def test_no_truncation_goes_unnoticed(tmp_path, older_layout):
    path = tmp_path / "model.pt"
    state = {"model": Content().state}
    torch.save(state, path, _use_new_zipfile_serialization=not older_layout)
    whole = path.read_bytes()
    for cut in random.Random(1).sample(range(len(whole) - 1), 40):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"model\.pt is "):
            load_model(path)


def test_no_changed_bytes_go_unnoticed(tmp_path):
    """Whatever is hit, the file is refused or gives the same model as before."""
    path = tmp_path / "model.pt"
    whole = Content().save(path).read_bytes()
    structure = structures("zero_block")[2]
    source = random.Random(2)
    for _ in range(60):
        content = bytearray(whole)
        at = source.randrange(len(whole))
        for i in range(at, min(at + 4, len(whole))):
            content[i] = source.randrange(256)
        path.write_bytes(content)
        try:
            model = load_model(path, dtype=torch.float64)
        except ValueError:
            continue
        difference = evaluate(model, structure).energies - structure.expected["energies"]
        assert abs(difference).max() < 1e-9


if __name__ == "__main__":
    for name_ in CASES:
        with tempfile.TemporaryDirectory() as folder_:
            told = str(error_of(name_, Path(folder_)))
            print(f"{name_:<45} {told.replace(folder_ + os.sep, '')}")
