from pathlib import Path

import pytest
import torch

from dp_calc.data import water_model

DATA = Path(__file__).parents[1] / "data"


def test_says_what_the_bundled_model_is(dp_calc):
    status, out, err = dp_calc("info", water_model())
    assert status == 0, err
    fields = {line[:16].strip(): line[17:] for line in out.splitlines()}
    assert fields["file"] == str(water_model())
    assert fields["architecture"] == "DPA4 (n_blocks 2, channels 32, lmax 2, mmax 1)"
    assert fields["size"] == "650,348 parameters, 2.7 MB"
    assert fields["elements"] == "O H"
    assert fields["cutoff"] == "6 Å"
    assert fields["branches"] == "Default"
    assert fields["version"] == "1.2"
    assert "PyTorch on" in fields["runs as"]
    assert "because" in fields["runs as"]


def test_older_format_version(dp_calc):
    _, out, _ = dp_calc("info", DATA / "version10.pt")
    assert "version        1\n" in out


def test_further_inputs_are_named(dp_calc):
    assert "also reads" not in dp_calc("info", water_model())[1]
    _, out, _ = dp_calc("info", DATA / "deepspin.pt")
    assert "also reads     spin (3 per atom, required)\n" in out
    _, out, _ = dp_calc("info", DATA / "classic" / "se_e2_a_options.pt")
    assert "also reads     fparam (2, optional), aparam (1 per atom, required)\n" in out


def test_elements_of_the_training_data(dp_calc, tmp_path):
    content = torch.load(water_model(), weights_only=True)
    params = content.get("model", content)["_extra_state"]["model_params"]
    params["info"] = {"observed_type": ["H"]}
    torch.save(content, tmp_path / "hydrogen.pt")
    _, out, _ = dp_calc("info", tmp_path / "hydrogen.pt")
    assert "elements       O H\n" in out
    assert "trained on     H\n" in out


@pytest.fixture
def two_branches(tmp_path):
    """Multi-task file with the bundled model under two names."""
    content = torch.load(water_model(), weights_only=True)
    state = content.get("model", content)
    params = state.pop("_extra_state")["model_params"]
    prefix = "model.Default."
    branches = {
        f"model.{name}.{key.removeprefix(prefix)}": value
        for name in ("Water", "Ice")
        for key, value in state.items()
    }
    extra = {"model_params": {"model_dict": {"Water": params, "Ice": params}}}
    path = tmp_path / "two.pt"
    torch.save({"model": {**branches, "_extra_state": extra}}, path)
    return path


def test_branches_are_listed_with_the_one_that_was_loaded(dp_calc, two_branches):
    status, out, _ = dp_calc("info", two_branches, "--head", "Ice")
    assert status == 0
    assert "branches       Water, Ice (loaded: Ice)\n" in out


def test_several_branches_without_a_choice_are_listed(dp_calc, two_branches):
    status, out, _ = dp_calc("info", two_branches)
    assert status == 0
    assert "head           Water\n  head           Ice\n" in out
    assert "--head NAME" in out


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("missing.pt", None, "there is no model file"),
        ("model.pth", b"", "TorchScript"),
        ("short.pt", b"PK\x03\x04 cut", "not a complete PyTorch file"),
        ("text.pt", b"hello", "PyTorch"),
    ],
)
def test_unusable_files_get_one_sentence(dp_calc, tmp_path, name, content, expected):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    status, out, err = dp_calc("info", path)
    assert (status, out) == (2, "")
    assert err.startswith("dp-calc: error: ")
    assert expected in err
    assert err.count("\n") == 1


def test_unknown_head_lists_the_known_ones(dp_calc):
    status, _, err = dp_calc("info", water_model(), "--head", "Metal")
    assert status == 2
    assert "'Metal'" in err
    assert "Default" in err
