"""From a file to a model: what is understood, and what is refused by name."""

import copy

import pytest
import torch
from dp_calc.models import InputSpec, UnsupportedOptionError, load_model
from dp_calc.models.classic import ClassicModel
from reference import DATA

FOLDER = DATA / "classic"
PREFIX = "model.Default.atomic_model."
EMBEDDING = PREFIX + "descriptor.sea.filter_layers.networks.0.layers.1.matrix"


def setting(section, **options):
    def change(params, state):
        (params[section] if section else params).update(copy.deepcopy(options))

    return change


@pytest.mark.parametrize(
    ("name", "architecture", "n_parameters"),
    [
        ("se_e2_a", "se_e2_a", 1146),
        ("se_e2_r", "se_e2_r", 786),
        ("se_e3", "se_e3", 780),
        ("se_e3_tebd", "se_e3_tebd", 489),
        ("dpa1_strip_attn0", "dpa1", 714),
    ],
)
def test_a_model_tells_what_it_is(name, architecture, n_parameters):
    model = load_model(FOLDER / f"{name}.pt")
    assert isinstance(model, ClassicModel)
    assert model.architecture == model.source.architecture == architecture
    assert model.type_map == ("Na", "Cl")
    assert model.rcut == 4.2
    assert model.version == 1.0
    assert model.shortest_distance == 1e-3
    assert model.min_nbor_dist == pytest.approx(1.7813, abs=1e-4)
    assert model.device == torch.device("cpu")
    assert model.inputs == ()
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    assert model.source.observed_types == ("Na", "Cl")
    assert model.source.n_parameters == n_parameters


def test_further_inputs_are_listed():
    model = load_model(FOLDER / "se_e2_a_options.pt")
    assert model.inputs == (
        InputSpec("fparam", 2, per_atom=False, required=False),
        InputSpec("aparam", 1, per_atom=True),
    )


@pytest.mark.parametrize(
    ("name", "alias"), [("se_e2_a", "se_a"), ("se_e2_r", "se_r"), ("se_e3", "se_at"),
                        ("se_e3", "se_a_3be"), ("dpa1_strip_attn0", "dpa1")]
)  # fmt: skip
def test_aliases_name_the_same_model(altered, name, alias):
    path = altered(name, setting("descriptor", type=alias))
    model, original = load_model(path), load_model(FOLDER / f"{name}.pt")
    assert model.architecture == original.architecture
    assert all(map(torch.equal, model.parameters(), original.parameters()))


def test_an_unknown_shortest_distance_is_none(altered):
    def change(params, state):
        state["model.Default.min_nbor_dist"] = torch.tensor(-1.0)

    assert load_model(altered("se_e2_a", change)).min_nbor_dist is None


@pytest.mark.parametrize(
    ("name", "section", "options"),
    [
        ("dpa1_strip_attn0", "descriptor", {"attn_layer": 2}),
        ("dpa1_strip_attn0", "descriptor", {"lmax": 3}),
        ("dpa1_strip_attn0", "descriptor", {"use_econf_tebd": True}),
        ("dpa1_strip_attn0", "descriptor", {"tebd_input_mode": "sum"}),
        ("se_e2_a", "descriptor", {"activation_function": "swish"}),
        ("se_e2_a", "descriptor", {"precision": "bfloat16"}),
        ("se_e2_a", "descriptor", {"rcut_smth": 4.2}),
        ("se_e2_a", "descriptor", {"sel": "auto"}),
        ("se_e2_a", "descriptor", {"sel": [26]}),
        ("se_e2_a", "descriptor", {"sel": [0, 0]}),
        ("dpa1_strip_attn0", "descriptor", {"stripped_type_embedding": "no"}),
        ("se_e2_a", "descriptor", {"neuron": [3, 0]}),
        ("se_e2_a", "descriptor", {"neuron": []}),
        ("se_e2_a", "descriptor", {"axis_neuron": 7}),
        ("se_e2_a", "descriptor", {"resnet_dt": "yes"}),
        ("se_e2_a", "descriptor", {"rcut": "far"}),
        ("se_e2_a", "descriptor", {"exclude_types": [[0, 2]]}),
        ("se_e2_a", "descriptor", {"new_switch": 1}),
        ("se_e2_a", "fitting_net", {"activation_function": "swish"}),
        ("se_e2_a", "fitting_net", {"exclude_types": [0]}),
        ("se_e2_a", "fitting_net", {"neuron": 10}),
        ("se_e2_a", "fitting_net", {"resnet_dt": 1}),
        ("se_e2_a", "fitting_net", {"atom_ener": -1.5}),
        ("se_e2_a", None, {"pair_exclude_types": [[0]]}),
        ("se_e2_a", None, {"atom_exclude_types": [2]}),
        ("se_e2_a", None, {"use_srtab": "zbl.txt"}),
        ("se_e2_a", None, {"spin": {"use_spin": [True, False]}}),
        ("se_e2_a", None, {"bridging_method": "ZBL"}),
    ],
)
def test_an_option_that_is_not_built_is_named(altered, name, section, options):
    (option,) = options
    with pytest.raises(UnsupportedOptionError, match=option):
        load_model(altered(name, setting(section, **options)))


@pytest.mark.parametrize(
    "options", [{"smooth_type_embedding": False}, {"tebd_input_mode": "concat"}]
)
def test_absent_neighbours_must_not_depend_on_the_first_atom(altered, options):
    def change(params, state):
        params["descriptor"].update(options)
        if "tebd_input_mode" in options:
            state[PREFIX + "descriptor.se_atten.mean"][:, :, 0] = 0.1

    name = "dpa1_concat" if "tebd_input_mode" in options else "dpa1_strip_attn0"
    with pytest.raises(UnsupportedOptionError, match="which atom comes first"):
        load_model(altered(name, change))


def test_another_fitting_is_no_energy_model(altered):
    with pytest.raises(ValueError, match="fitting net of type 'dipole'"):
        load_model(altered("se_e2_a", setting("fitting_net", type="dipole")))


def test_another_descriptor_is_refused(altered):
    with pytest.raises(ValueError, match="model of type 'hybrid'"):
        load_model(altered("se_e2_a", setting("descriptor", type="hybrid")))


def removed(params, state):
    del state[EMBEDDING], state[EMBEDDING.replace("networks", "_networks")]


def added(params, state):
    state[PREFIX + "descriptor.sea.third_order"] = torch.ones(2)


def reshaped(params, state):
    for twin in ("networks", "_networks"):
        state[EMBEDDING.replace("networks", twin)] = torch.ones(3, 7)


def infinite(params, state):
    for twin in ("networks", "_networks"):
        state[EMBEDDING.replace("networks", twin)][0, 1] = torch.inf


def integers(params, state):
    state[PREFIX + "out_bias"] = state[PREFIX + "out_bias"].long()


def different_twins(params, state):
    state[EMBEDDING] = state[EMBEDDING] + 1


def flat_statistics(params, state):
    state[PREFIX + "descriptor.sea.stddev"][1] = 0


def uneven_statistics(params, state):
    state[PREFIX + "descriptor.sea.mean"][1, 3, 0] += 1e-3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (removed, "lacks descriptor.embeddings.0.layers.1.matrix"),
        (added, "descriptor.sea.third_order, which nothing uses"),
        (reshaped, r"layers.1.matrix has shape \(3, 7\), its options ask for \(3, 6\)"),
        (infinite, "layers.1.matrix is not finite"),
        (integers, "out_bias holds torch.int64 in the place of floating-point"),
        (different_twins, "differ"),
        (flat_statistics, "stddev is not positive"),
        (uneven_statistics, "mean differs between neighbours of one atom"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_the_tensor(altered, change, words):
    with pytest.raises(ValueError, match=words):
        load_model(altered("se_e2_a", change))


def test_statistics_are_for_the_number_of_neighbours(altered):
    path = altered("dpa1_strip_attn0", setting("descriptor", sel=60))
    with pytest.raises(ValueError, match=r"mean .* its options ask for 60 neighbours"):
        load_model(path)


def test_one_copy_of_each_net_is_enough(altered):
    def change(params, state):
        for key in [k for k in state if ".networks." in k]:
            del state[key]

    model, original = (
        load_model(altered("se_e2_a", change)),
        load_model(FOLDER / "se_e2_a.pt"),
    )
    assert all(map(torch.equal, model.parameters(), original.parameters()))


def test_a_compressed_checkpoint_is_refused(altered):
    def change(params, state):
        state[PREFIX + "descriptor.sea.compress_data.0"] = torch.ones(10, 36)

    with pytest.raises(UnsupportedOptionError, match="compressed model"):
        load_model(altered("se_e2_a", change))
