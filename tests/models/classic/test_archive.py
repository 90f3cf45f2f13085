"""Files of compressed models: the same model comes back, and damage is told."""

import copy
import warnings

import pytest
import torch
from dp_calc.models import load_model
from dp_calc.models.classic.archive import save_compressed
from dp_calc.models.classic.compress import compress, is_compressed
from reference import DATA, evaluate, structures

FOLDER = DATA / "classic"
NAMES = ["se_e2_a_twoside", "se_e2_a_options", "se_e2_r", "se_e3", "se_e3_tebd",
         "dpa1_strip_attn0", "dpa1_strip_oneside_excl"]  # fmt: skip
TABLE = "model.Default.descriptor.embeddings.0.table"
INFO = "model.Default.descriptor.embeddings.0.info"
GATES = "model.Default.descriptor.gate.gates"


@pytest.fixture
def saved(tmp_path):
    """A function that compresses a model in float64, writes it and gives the path."""

    def save(name):
        path = tmp_path / f"{name}.pt"
        model = load_model(FOLDER / f"{name}.pt", dtype=torch.float64)
        save_compressed(compress(model), path)
        return path

    return save


@pytest.mark.parametrize("name", NAMES)
def test_the_same_model_comes_back(name, saved):
    model, original = load_model(saved(name)), load_model(FOLDER / f"{name}.pt")
    expected = compress(original)
    assert is_compressed(model)
    assert not is_compressed(original)
    state = expected.state_dict()
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(x, state[k]) for k, x in model.state_dict().items())
    assert not any(p.requires_grad for p in model.parameters())
    for structure in structures(name, FOLDER):
        ours, theirs = evaluate(model, structure), evaluate(expected, structure)
        assert (ours.energies == theirs.energies).all()
        assert (ours.forces == theirs.forces).all()


def test_it_is_described_like_the_original(saved):
    model, original = load_model(saved("se_e2_a")), load_model(FOLDER / "se_e2_a.pt")
    for name in (
        "architecture",
        "version",
        "type_map",
        "rcut",
        "min_nbor_dist",
        "inputs",
    ):
        assert getattr(model, name) == getattr(original, name)
    for name in ("head", "branches", "options", "observed_types"):
        assert getattr(model.source, name) == getattr(original.source, name)


def test_without_a_precision_it_is_that_of_the_checkpoint(saved):
    """The file holds float64, so that nothing is lost for those who ask for it."""
    path = saved("dpa1_f32")
    assert load_model(path).dtype == torch.float32
    exact = load_model(path, dtype=torch.float64)
    expected = compress(load_model(FOLDER / "dpa1_f32.pt", dtype=torch.float64))
    assert torch.equal(
        exact.descriptor.embeddings["0"].table, expected.descriptor.embeddings["0"].table
    )


def test_a_branch_keeps_its_name(tmp_path, altered):
    def change(params, state):
        tensors = {k: v for k, v in state.items() if k.startswith("model.Default.")}
        for key, tensor in tensors.items():
            state[key.replace(".Default.", ".salt.")] = state.pop(key)
            state[key.replace(".Default.", ".other.")] = tensor
        options = dict(params)
        params.clear()
        params["model_dict"] = {"salt": options, "other": copy.deepcopy(options)}

    model = compress(load_model(altered("se_e2_a", change), head="salt"))
    save_compressed(model, tmp_path / "one.pt")
    loaded = load_model(tmp_path / "one.pt")
    assert loaded.source.head == "salt"
    assert loaded.source.branches == ("salt",)
    with pytest.raises(ValueError, match="has no head 'other'"):
        load_model(tmp_path / "one.pt", head="other")


def test_an_unknown_shortest_distance_stays_unknown(tmp_path):
    model = load_model(FOLDER / "se_e2_a.pt")
    model.min_nbor_dist = None
    save_compressed(compress(model, min_nbor_dist=1.7), tmp_path / "model.pt")
    assert load_model(tmp_path / "model.pt").min_nbor_dist is None


def test_the_same_model_gives_the_same_bytes(saved, tmp_path):
    first = saved("se_e2_a").read_bytes()
    model = compress(load_model(FOLDER / "se_e2_a.pt"))
    save_compressed(model, tmp_path / "again.pt")
    assert (tmp_path / "again.pt").read_bytes() == first


def test_it_holds_plain_data_only(saved):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        content = torch.load(saved("dpa1_strip_attn0"), weights_only=True)
    assert set(content) == {"dp_calc_format", "model"}


def test_what_is_not_compressed_is_not_written(tmp_path):
    for name in ("classic/se_e2_a", "plain"):
        with pytest.raises(ValueError, match="only a compressed model can be written"):
            save_compressed(load_model(DATA / f"{name}.pt"), tmp_path / "model.pt")
    model = compress(load_model(FOLDER / "se_e2_a.pt"))
    del model.source
    with pytest.raises(ValueError, match="must come from load_model"):
        save_compressed(model, tmp_path / "model.pt")
    assert not list(tmp_path.iterdir())


def test_a_compressed_model_is_not_compressed_again(saved):
    with pytest.raises(ValueError, match="compressed already"):
        compress(load_model(saved("se_e2_a")))


def _without(name):
    return lambda content: content["model"].pop(name)


def _with(name, change):
    def apply(content):
        content["model"][name] = change(content["model"][name])

    return apply


def _option(value):
    return lambda content: content["model"]["_extra_state"]["model_params"]["model_dict"][
        "Default"
    ]["descriptor"].update(value)


DAMAGE = {
    "no table": (_without(TABLE), "embeddings.0 has no table and domain"),
    "no domain": (_without(INFO), "embeddings.0 has no table and domain"),
    "short domain": (_with(INFO, lambda x: x[:5]), "has no table and domain"),
    "flat table": (_with(TABLE, torch.flatten), "has no table and domain"),
    "fewer rows": (_with(TABLE, lambda x: x[:-1]), "do not belong together"),
    "other stride": (
        _with(INFO, lambda x: x * torch.tensor([1, 1, 1, 1.1, 1, 1])),
        "do not divide",
    ),
    "nan in the domain": (_with(INFO, lambda x: x * torch.nan), "must be finite"),
    "fewer channels": (_with(TABLE, lambda x: x[:, 6:]), "its options ask for"),
    "nan in the table": (_with(TABLE, lambda x: x * torch.nan), "not finite"),
    "whole numbers": (_with(TABLE, torch.Tensor.long), "in the place of floating-point"),
    "no gate": (_without(GATES), "lacks descriptor.gate.gates"),
    "other gate": (_with(GATES, lambda x: x[:, :1]), "its options ask for"),
    "other options": (_option({"neuron": [2, 4, 7]}), "its options ask for"),
    "net in the place of a table": (
        lambda content: content["model"].update(
            {TABLE.replace("table", "layers.0.bias"): torch.zeros(2).double()}
        ),
        "which nothing uses",
    ),
    "joint net": (_option({"tebd_input_mode": "concat"}), "does not fit its own options"),
    "later format": (lambda content: content.update(dp_calc_format=2), "update dp-calc"),
    "strange format": (
        lambda content: content.update(dp_calc_format=torch.zeros(3)),
        "reads only 1",
    ),
    "true": (lambda content: content.update(dp_calc_format=True), "reads only 1"),
    "not said": (lambda content: content.pop("dp_calc_format"), "does not fit"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_told_in_one_sentence(damage, saved):
    path = saved("dpa1_strip_attn0")
    content = torch.load(path, weights_only=True)
    change, sentence = DAMAGE[damage]
    change(content)
    torch.save(content, path)
    with pytest.raises(ValueError, match=sentence) as error:
        load_model(path)
    assert str(error.value).count(str(path)) == 1
    assert "\n" not in str(error.value)


def test_the_size_of_the_tables_is_read_from_the_file(tmp_path):
    model = compress(load_model(FOLDER / "se_e3.pt"), 0.02, 3.0)
    save_compressed(model, tmp_path / "model.pt")
    loaded = load_model(tmp_path / "model.pt")
    for number, embedding in loaded.descriptor.embeddings.items():
        assert embedding.domain == model.descriptor.embeddings[number].domain
