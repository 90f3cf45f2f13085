import os
from pathlib import Path

import pytest
import torch
from ase import Atoms
from dp_calc.models.classic.compress import is_compressed

from dp_calc import DP, load_model
from dp_calc.cli import compress as command

DATA = Path(__file__).parents[1] / "data"
MODEL = DATA / "classic/se_e2_a.pt"


def domains(path):
    embeddings = load_model(path).descriptor.embeddings
    return [embedding.domain for embedding in embeddings.values()]


@pytest.mark.parametrize("name", ["se_e2_a", "dpa1_f32"])
def test_writes_what_the_calculator_would_compute(dp_calc, tmp_path, name):
    checkpoint, output = DATA / f"classic/{name}.pt", tmp_path / "out.pt"
    status, out, err = dp_calc("compress", checkpoint, "-o", output)
    assert (status, err) == (0, "")
    assert is_compressed(load_model(output))
    elements = load_model(checkpoint).type_map[:2]
    atoms = Atoms(elements, [[0, 0, 0], [1.2, 2.0, 0.3]])
    options = {"device": "cpu", "dtype": "float64"}
    expected = DP(checkpoint, compress=True, **options).get_property("forces", atoms)
    result = DP(output, **options).get_property("forces", atoms)
    assert abs(expected).max() > 1e-3
    assert (result == expected).all()
    # In the precision of the checkpoint unless asked for another.
    assert load_model(output).dtype == load_model(checkpoint).dtype
    assert str(output) in out
    assert "MB" in out


def test_tells_how_large_the_tables_are(dp_calc, tmp_path):
    _, out, _ = dp_calc("compress", MODEL, "-o", tmp_path / "out.pt")
    rows = sum(domain.rows for domain in domains(tmp_path / "out.pt"))
    assert f"2 with {rows:,} rows" in out


def test_options_shape_the_tables(dp_calc, tmp_path):
    output = tmp_path / "out.pt"
    dp_calc("compress", MODEL, "-o", output)
    plain = domains(output)
    arguments = ("--stride", 0.02, "--extrapolate", 3, "--min-nbor-dist", 0.9)
    status, _, err = dp_calc("compress", MODEL, "-o", output, *arguments)
    assert (status, err) == (0, "")
    for before, after in zip(plain, domains(output), strict=True):
        assert (before.fine, after.fine) == (0.01, 0.02)
        assert (before.right, after.right) == (5 * before.upper, 3 * after.upper)
        assert after.upper > before.upper


def test_info_tells_that_a_file_is_compressed(dp_calc, tmp_path):
    dp_calc("compress", MODEL, "-o", tmp_path / "out.pt")
    _, before, _ = dp_calc("info", MODEL)
    _, after, _ = dp_calc("info", tmp_path / "out.pt")
    assert "embedding nets as tables)\n" in after
    assert "tables" not in before


def test_evaluate_takes_it(dp_calc, tmp_path):
    Atoms("NaCl", [[0, 0, 0], [0, 0, 2.5]]).write(tmp_path / "pair.xyz")
    dp_calc("compress", MODEL, "-o", tmp_path / "out.pt")
    outputs = [
        dp_calc("evaluate", tmp_path / "pair.xyz", "-m", model)[1]
        for model in (MODEL, tmp_path / "out.pt")
    ]
    assert "ClNa" in outputs[0]
    assert outputs[0] == outputs[1]


def _one_branch_of_two(path):
    content = torch.load(MODEL, weights_only=True)
    state = content["model"]
    params = state.pop("_extra_state")["model_params"]
    both = {
        key.replace("model.Default.", f"model.{name}."): tensor
        for name in ("salt", "other")
        for key, tensor in state.items()
    }
    extra = {"model_params": {"model_dict": {"salt": params, "other": params}}}
    torch.save({"model": {**both, "_extra_state": extra}}, path)


def test_one_branch(dp_calc, tmp_path):
    both, output = tmp_path / "both.pt", tmp_path / "out.pt"
    _one_branch_of_two(both)
    status, _, err = dp_calc("compress", both, "-o", output)
    assert status == 2
    assert "choose one" in err
    status, out, _ = dp_calc("compress", both, "-o", output, "--head", "salt")
    assert status == 0
    assert "head salt" in out
    assert load_model(output).source.branches == ("salt",)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--stride", "0"], "stride must be a positive number, not 0.0"),
        (["--stride", "0.03"], "do not divide"),
        (["--extrapolate", "1"], "extrapolate must be a number above 1"),
        (["--min-nbor-dist", "9"], "between 0 and the cutoff"),
        (["--stride", "small"], "invalid float value: 'small'"),
    ],
)
def test_wrong_options(dp_calc, tmp_path, arguments, expected):
    output = tmp_path / "out.pt"
    status, out, err = dp_calc("compress", MODEL, "-o", output, *arguments)
    assert (status, out) == (2, "")
    assert expected in err
    assert not list(tmp_path.iterdir())


def test_models_without_embedding_nets_are_told(dp_calc, tmp_path):
    output = tmp_path / "out.pt"
    status, _, err = dp_calc("compress", DATA / "plain.pt", "-o", output)
    assert status == 2
    assert err == (
        "dp-calc: error: a DPA4 model has no embedding nets that tables could replace; "
        "run it as it is\n"
    )
    assert not output.exists()


def test_a_compressed_file_is_not_compressed_again(dp_calc, tmp_path):
    dp_calc("compress", MODEL, "-o", tmp_path / "out.pt")
    status, _, err = dp_calc("compress", tmp_path / "out.pt", "-o", tmp_path / "two.pt")
    assert status == 2
    assert "compressed already" in err


def test_an_unknown_shortest_distance_can_be_given(dp_calc, tmp_path):
    content = torch.load(MODEL, weights_only=True)
    del content["model"]["model.Default.min_nbor_dist"]
    torch.save(content, tmp_path / "in.pt")
    arguments = ("compress", tmp_path / "in.pt", "-o", tmp_path / "out.pt")
    status, _, err = dp_calc(*arguments)
    assert status == 2
    assert "--min-nbor-dist" in err
    assert dp_calc(*arguments, "--min-nbor-dist", 1.7)[0] == 0


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda folder: folder / "in.pt", "would overwrite an input"),
        (lambda folder: folder / "linked.pt", "would overwrite an input"),
        (lambda folder: folder / "out.pth", "give it the ending .pt"),
        (lambda folder: folder / "none/out.pt", "there is no folder"),
        (lambda folder: folder / "folder.pt", "is not a file"),
    ],
)
def test_outputs_are_checked_before_anything_runs(
    dp_calc, tmp_path, monkeypatch, make, expected
):
    (tmp_path / "in.pt").write_bytes(MODEL.read_bytes())
    (tmp_path / "linked.pt").symlink_to(tmp_path / "in.pt")
    (tmp_path / "folder.pt").mkdir()
    monkeypatch.setattr(command, "_compressed", None)
    status, _, err = dp_calc("compress", tmp_path / "in.pt", "-o", make(tmp_path))
    assert status == 2
    assert expected in err
    assert (tmp_path / "in.pt").read_bytes() == MODEL.read_bytes()


def test_a_failure_leaves_the_old_output(dp_calc, tmp_path, monkeypatch):
    output = tmp_path / "out.pt"
    output.write_text("old")

    def fail(content, file):
        file.write(b"half of it")
        raise OSError(28, os.strerror(28), "disk")

    monkeypatch.setattr(torch, "save", fail)
    status, _, err = dp_calc("compress", MODEL, "-o", output)
    assert (status, err) == (2, "dp-calc: error: disk: No space left on device\n")
    assert output.read_text() == "old"
    assert list(tmp_path.iterdir()) == [output]


def test_an_output_is_required(dp_calc):
    status, _, err = dp_calc("compress", MODEL)
    assert status == 2
    assert "-o" in err
