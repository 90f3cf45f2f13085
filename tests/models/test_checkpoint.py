"""Heads, averaged weights, older names and versions: which model a file gives."""

import pytest
import torch
from checkpoints import DESCRIPTOR, FITTING, Content, multi_task
from dp_calc.models import UnsupportedOptionError, load_model
from dp_calc.models.dpa4.legacy import upgrade
from reference import DATA, evaluate, structures

NAMES = ("zero_block", "plain")


def energies(model, name="zero_block"):
    return evaluate(model, structures(name)[2]).energies


def expected(name="zero_block"):
    return structures(name)[2].expected["energies"]


def gives(path, name="zero_block", head=None):
    """Whether the file's head is the model of ``tests/data/NAME.pt``."""
    model = load_model(path, head, dtype=torch.float64)
    return bool(abs(energies(model, name) - expected(name)).max() < 1e-9)


@pytest.fixture
def heads(tmp_path):
    """Two branches with aliases: the models of ``NAMES``."""
    branches = dict(zip(("Water", "OMat"), map(Content, NAMES), strict=True))
    content = multi_task(
        branches,
        Water={"model_branch_alias": ["H2O", "ice"]},
        OMat={"model_branch_alias": ["solids"]},
    )
    return content, tmp_path / "heads.pt"


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("Water", "zero_block"),
        ("water", "zero_block"),
        ("H2O", "zero_block"),
        ("ICE", "zero_block"),
        ("OMat", "plain"),
        ("solids", "plain"),
    ],
)
def test_heads_by_name_or_alias_in_capitals_or_not(heads, head, name):
    content, path = heads
    assert gives(content.save(path), name, head)


def test_every_branch_is_listed(heads):
    content, path = heads
    source = load_model(content.save(path), "ice").source
    assert source.head == "Water"
    assert source.branches == ("Water", "OMat")


@pytest.mark.parametrize("head", [None, "Wat", "Water.", "nonsense", ""])
def test_a_head_that_is_missing_or_wrong_lists_all(heads, head):
    content, path = heads
    with pytest.raises(ValueError, match="H2O, OMat, Water, ice, solids"):
        load_model(content.save(path), head)


@pytest.mark.parametrize("head", [0, True, b"Water", ["Water"]])
def test_a_head_is_a_name(heads, head):
    content, path = heads
    with pytest.raises(ValueError, match="head must be the name of a branch"):
        load_model(content.save(path), head)


def test_a_branch_or_alias_called_default_is_the_default(heads):
    content, path = heads
    content.params["model_dict"]["OMat"]["model_branch_alias"] = ["Default"]
    assert gives(content.save(path), "plain")


def test_the_only_branch_needs_no_head(tmp_path):
    content = multi_task({"Water": Content()})
    assert gives(content.save(tmp_path / "one.pt"))


def test_an_alias_of_two_branches_is_an_error(heads):
    content, path = heads
    content.params["model_dict"]["OMat"]["model_branch_alias"] = ["ice"]
    with pytest.raises(ValueError, match="'ice' stands for the heads Water and OMat"):
        load_model(content.save(path), "Water")


def test_an_alias_that_is_the_name_of_another_branch_is_an_error(heads):
    content, path = heads
    content.params["model_dict"]["OMat"]["model_branch_alias"] = ["Water"]
    with pytest.raises(ValueError, match="'Water' stands for the heads Water and OMat"):
        load_model(content.save(path), "Water")


def test_names_that_differ_in_capitals_only_are_told_apart(tmp_path):
    path = multi_task({"A": Content("zero_block"), "a": Content("plain")}).save(
        tmp_path / "ab.pt"
    )
    assert gives(path, "zero_block", "A")
    assert gives(path, "plain", "a")
    content = multi_task({"AB": Content("zero_block"), "ab": Content("plain")})
    with pytest.raises(ValueError, match="several heads that are 'Ab' but for capitals"):
        load_model(content.save(path), "Ab")


def test_a_branch_whose_name_begins_like_another(tmp_path):
    branches = {"A": Content("zero_block"), "A.B": Content("plain")}
    path = multi_task(branches).save(tmp_path / "dots.pt")
    assert gives(path, "zero_block", "A")
    assert gives(path, "plain", "A.B")


def test_a_name_inside_the_name_of_a_tensor_is_no_branch(tmp_path):
    content = multi_task({"A": Content("zero_block"), "B": Content("plain")})
    content.state["model.B.model.A.out_bias"] = torch.zeros(1)
    assert gives(content.save(tmp_path / "inside.pt"), "zero_block", "A")


def test_a_single_model_has_the_head_default_only(tmp_path):
    assert gives(DATA / "zero_block.pt", head="default")
    with pytest.raises(ValueError, match="has no head 'Water'; its heads are: Default"):
        load_model(DATA / "zero_block.pt", "Water")
    content = Content()
    content.params["model_branch_alias"] = ["Water"]
    assert gives(content.save(tmp_path / "alias.pt"), head="water")


def test_averaged_weights_beside_the_others_are_not_read(tmp_path):
    content = Content()
    average = {k.removeprefix("model.Default."): v * 0 for k, v in
               content.only_tensors().items()}  # fmt: skip
    path = tmp_path / "with_ema.pt"
    ema = {"decay": 0.999, "model": average, "validation_state": None}
    torch.save({"model": content.state, "optimizer": {"state": {}}, "ema": ema}, path)
    assert gives(path)


def test_a_file_of_averaged_weights_is_like_any_other(tmp_path):
    assert gives(Content().save(tmp_path / "model.ckpt_ema-1000.pt"))


def test_the_state_without_a_level_above_it(tmp_path):
    path = tmp_path / "bare.pt"
    torch.save(Content().state, path)
    assert gives(path)


def test_the_layout_of_older_pytorch(tmp_path):
    path = tmp_path / "old.pt"
    torch.save({"model": Content().state}, path, _use_new_zipfile_serialization=False)
    assert gives(path)


def test_a_file_without_checksums(tmp_path):
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        path = Content().save(tmp_path / "no_checksums.pt")
    finally:
        torch.serialization.set_crc32_options(before)
    assert gives(path)


def test_a_file_under_any_name(tmp_path):
    assert gives(Content().save(tmp_path / "model.pth"))
    assert gives(Content().save(tmp_path / "model"))


@pytest.mark.parametrize(
    "unused",
    [
        "atomic_model.dens_force_rmsd",
        "atomic_model.out_std",
        "min_nbor_dist",
        "atomic_model.descriptor.mean",
        "atomic_model.descriptor._empty_tensor",
        "atomic_model.descriptor.blocks.0.so2_conv.rotate_inv_rescale_full",
        "atomic_model.descriptor.blocks.0.so2_conv.coeff_index_m",
        "atomic_model.descriptor.blocks.0.ffns.0.act.projector.from_grid_mat",
    ],
)
def test_what_follows_from_the_options_may_be_there_or_not(tmp_path, unused):
    content = Content("plain")
    key = "model.Default." + unused
    if content.state.pop(key, None) is None:
        content.state[key] = torch.ones(4)
    assert gives(content.save(tmp_path / "other.pt"), "plain")


def test_older_names_of_options(tmp_path):
    content = Content("plain")
    descriptor, fitting = content.params["descriptor"], content.params["fitting_net"]
    descriptor["so2_layers"] = descriptor["mixing_layers"]
    descriptor["mixing_layers"] = 17
    descriptor["s2_grid_resolution"] = [7, 9]
    fitting["n_neuron"] = fitting.pop("neuron")
    assert gives(content.save(tmp_path / "names.pt"), "plain")
    descriptor["so2_layers"], descriptor["mixing_layers"] = None, descriptor["so2_layers"]
    assert gives(content.save(tmp_path / "names.pt"), "plain")


def test_options_that_an_older_file_lacks(tmp_path):
    content = Content()
    kept = {"type", "type_map", "descriptor", "fitting_net"}
    for name in content.params.keys() - kept:
        del content.params[name]
    assert gives(content.save(tmp_path / "few.pt"))


@pytest.mark.parametrize("stored", [None, "sezm_ener", "ener"])
def test_older_names_of_the_gated_fitting_net(tmp_path, stored):
    content = Content()
    content.params["fitting_net"] = {"type": stored} if stored else {}
    assert gives(content.save(tmp_path / "fitting.pt"))


@pytest.mark.parametrize("stored", ["ener", "dpa4_ener"])
def test_a_classic_network_is_refused_whatever_its_name(tmp_path, stored):
    content = Content()
    content.params["fitting_net"]["type"] = stored
    network = FITTING + "filter_layers.networks.0."
    for key in [k for k in content.state if k.startswith(network)]:
        del content.state[key]
    content.state[network + "layers.0.matrix"] = torch.ones(16, 8)
    content.state[network + "layers.0.bias"] = torch.ones(8)
    with pytest.raises(ValueError, match="without the gated layers of DPA4"):
        load_model(content.save(tmp_path / "classic.pt"))


@pytest.mark.parametrize("stored", ["SeZM", "sezm", "DPA4"])
def test_names_of_the_architecture(tmp_path, stored):
    content = Content()
    content.params["type"] = content.params["descriptor"]["type"] = stored
    assert gives(content.save(tmp_path / "named.pt"))
    del content.params["descriptor"]["type"]
    assert gives(content.save(tmp_path / "named.pt"))


def bridged():
    content = Content()
    content.params.update(
        bridging_method="ZBL", bridging_r_inner=0.6, bridging_r_outer=1.3
    )
    numbers = {"H": 1, "C": 6, "O": 8, "Na": 11, "Cl": 17, "Cu": 29}
    content.state["model.Default.inter_potential.atomic_numbers"] = torch.tensor(
        [float(numbers[name]) for name in content.params["type_map"]]
    )
    return content


def test_both_forms_of_bridging_are_one_model(tmp_path):
    plain = load_model(bridged().save(tmp_path / "plain.pt"), dtype=torch.float64)
    content = bridged()
    learned = {k: v for k, v in content.params.items() if not k.startswith("bridging_")}
    composed = {
        "type": "linear_ener",
        "weights": "sum",
        "type_map": content.params["type_map"],
        "models": [
            learned,
            {"type": "inner_potential", "mode": "zbl", "r_inner": 0.6, "r_outer": 1.3},
        ],
    }
    content.params.clear()
    content.params.update(composed)
    model = load_model(content.save(tmp_path / "sum.pt"), dtype=torch.float64)
    assert (energies(model) == energies(plain)).all()
    assert not gives(tmp_path / "plain.pt")
    assert model.source.options["channels"] == learned["descriptor"]["channels"]
    content.params["weights"] = "mean"
    with pytest.raises(UnsupportedOptionError, match="the sum of one DPA4 model and"):
        load_model(content.save(tmp_path / "mean.pt"))


def test_a_file_without_a_version_is_of_the_first(tmp_path):
    content = Content("version10")
    content.state.pop(DESCRIPTOR + "version_tensor", None)
    path = content.save(tmp_path / "no_version.pt")
    assert load_model(path).source.version == 1.0
    assert gives(path, "version10")


def test_versions_from_1_1_on_are_alike_without_spins(tmp_path):
    content = Content("plain")
    for version in (1.1, 1.15, 1.2):
        content.state[DESCRIPTOR + "version_tensor"] = torch.tensor(version).double()
        assert gives(content.save(tmp_path / "version.pt"), "plain")


@pytest.mark.parametrize("version", [0.9, 1.3, 2.0, float("nan"), [1.0, 1.2]])
def test_unknown_versions_are_refused(tmp_path, version):
    content = Content()
    content.state[DESCRIPTOR + "version_tensor"] = torch.tensor(version)
    with pytest.raises(ValueError, match=r"versions 1\.0 to 1\.2 are known"):
        load_model(content.save(tmp_path / "version.pt"))


@pytest.mark.parametrize("structure", structures("spin_version11"), ids=lambda s: s.name)
def test_spins_of_version_1_1_agree_with_the_reference(structure):
    model = load_model(DATA / "spin_version11.pt", dtype=torch.float64)
    result, expected = evaluate(model, structure), structure.expected
    assert abs(result.energies - expected["energies"]).max() < 1e-9
    assert abs(result.forces - expected["forces"]).max() < 1e-9
    assert abs(result.magnetic_forces - expected["force_mag"]).max() < 1e-9


def test_the_reference_of_version_1_1_depends_on_spins():
    assert (
        max(abs(s.expected["force_mag"]).max() for s in structures("spin_version11"))
        > 0.01
    )


def test_unused_spin_tensors_of_version_1_1_count_as_zero():
    name = "atomic_model.descriptor.spin_embedding.adam_spin_vec_weight"
    kept = "atomic_model.descriptor.spin_embedding.mag_layer1.matrix"
    tensors = {name: torch.full((3, 2), torch.nan), kept: torch.ones(1, 2)}
    upgraded = upgrade(tensors, 1.1, (False, False, False))
    assert not upgraded[name].any()
    assert upgraded[kept] is tensors[kept]
    for version in (1.0, 1.2):
        assert upgrade(tensors, version, (False, False, False)) is tensors


def test_training_elements_are_told(tmp_path):
    content = Content()
    assert load_model(content.save(tmp_path / "a.pt")).source.observed_types is None
    content.params["info"] = {"observed_type": ["H", "O"]}
    assert load_model(content.save(tmp_path / "b.pt")).source.observed_types == ("H", "O")
