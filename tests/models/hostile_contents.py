"""PyTorch files whose options or tensors make no model."""

import json

import torch
from checkpoints import DESCRIPTOR, FITTING, Content, multi_task
from dp_calc.models import UnsupportedOptionError
from hostile import case, changed, wrong_option

OUT_BIAS = "model.Default.atomic_model.out_bias"
OUTPUT = FITTING + "filter_layers.networks.0.output_layer.matrix"
TYPE_EMBEDDING = DESCRIPTOR + "type_embedding.adam_type_embedding"

# PyTorch files that are no checkpoint of a known model.


@case("but not a DeePMD-kit training checkpoint")
def one_tensor(path):
    torch.save(torch.ones(3), path)


@case("but not a DeePMD-kit training checkpoint")
def foreign_checkpoint(path):
    torch.save({"state_dict": {"weight": torch.ones(3)}, "epoch": 3}, path)


@changed("but not a DeePMD-kit training checkpoint")
def no_options(content):
    del content.state["_extra_state"]


@changed("but not a DeePMD-kit training checkpoint")
def options_as_text(content):
    content.state["_extra_state"]["model_params"] = json.dumps(content.params)


@changed("written by the exportable PyTorch backend")
def exportable_dialect(content):
    for key in [k for k in content.state if k.startswith(FITTING)]:
        name = key.replace("filter_layers.networks", "nets.networks")
        content.state[name.replace(".matrix", ".w")] = content.state.pop(key)


@changed("written by the exportable PyTorch backend")
def compiled_exportable_dialect(content):
    content.rename("model.Default.", "model.Default.original_model.")


@changed("holds a model of type 'se_atten_v3'")
def unknown_descriptor(content):
    content.params["type"] = "standard"
    content.params["descriptor"]["type"] = "se_atten_v3"


@changed("holds a model of type 'dpa3'")
def another_descriptor(content):
    content.params["type"] = "standard"
    content.params["descriptor"]["type"] = "dpa3"


@changed("holds a model of type 'pairtab'")
def tabulated_pairs(content):
    del content.params["descriptor"]
    content.params["type"] = "pairtab"


@changed("supported only as the sum of", UnsupportedOptionError)
def sum_of_models(content):
    children = [{"type": "dpa4", "descriptor": {}}, {"type": "pairtab"}]
    content.params.update(type="linear_ener", weights="sum", models=children)


@changed("holds a property model, which has no energy surface")
def property_model(content):
    content.params["fitting_net"]["type"] = "property"


@changed("holds a denoising model .dens., which has no energy surface")
def denoising_model(content):
    content.state["model.Default.atomic_model.dens_fitting_net.w"] = torch.ones(2)


@changed("has a fitting net of type 'dipole'")
def dipole_model(content):
    content.params["fitting_net"]["type"] = "dipole"


@changed("without the gated layers of DPA4")
def classic_fitting_net(content):
    content.params["fitting_net"]["type"] = "ener"
    content.rename(FITTING + "filter_layers.networks.0.hidden_", FITTING + "filter_")
    content.state[FITTING + "filter_layers.networks.0.layers.0.matrix"] = torch.ones(2, 2)
    del content.state[OUTPUT]


# Options of the wrong kind.


@changed("is damaged: it lists no elements")
def no_elements(content):
    del content.params["type_map"]


@changed("is damaged: it lists no elements")
def elements_as_text(content):
    content.params["type_map"] = "HCO"


@changed("its type_map holds more than names")
def numbers_for_elements(content):
    content.params["type_map"] = [1, 6, 8, 11, 17, 29]


@changed("its type_map lists C, H more than once")
def elements_twice(content):
    content.params["type_map"] = ["H", "C", "O", "H", "C", "Cu"]


@changed("does not fit its own options|has shape")
def too_few_elements(content):
    content.params["type_map"] = ["H", "C"]


@changed("in the place of the section descriptor")
def descriptor_as_text(content):
    content.params["descriptor"] = "dpa4"


@changed("in the place of the section fitting_net")
def fitting_as_list(content):
    content.params["fitting_net"] = [{"neuron": [0]}]


@changed("holds a DPA4 model without a descriptor section")
def no_descriptor(content):
    del content.params["descriptor"]


@changed("its model_dict names no model")
def no_branches(content):
    content.params["model_dict"] = {}


@changed("branch 'A' has no model options")
def branch_as_text(content):
    content.params["model_dict"] = {"A": "dpa4"}


@case("holds no tensor named model.B.")
def branch_without_tensors(path):
    content = multi_task({"A": Content(), "B": Content()})
    for key in [k for k in content.state if k.startswith("model.B.")]:
        del content.state[key]
    content.params["model_dict"]["B"]["model_branch_alias"] = ["Default"]
    content.save(path)


@changed("the aliases of Default are no list")
def alias_as_number(content):
    content.params["model_branch_alias"] = 3


@changed("descriptor option wavelets is not known", UnsupportedOptionError)
def unknown_option(content):
    content.params["descriptor"]["wavelets"] = True


@changed("fitting_net option depth is not known", UnsupportedOptionError)
def unknown_fitting_option(content):
    content.params["fitting_net"]["depth"] = 3


for section_, option_, values_ in (
    ("descriptor", "rcut", ["6.0", None, 0.0, -1.0, float("nan"), float("inf"), True]),
    ("descriptor", "channels", ["16", 16.0, 0, -3, None, [16]]),
    ("descriptor", "edge_norm", ["false", 0, None]),
    ("descriptor", "lmax", ["2", -1, None, 1000]),
    ("descriptor", "radial_mlp", [0, None, ["a"], [-1]]),
    ("descriptor", "env_exp", [7, [7], [7, "5"]]),
    ("descriptor", "sandwich_norm", [True, [1, 0, 0, 1], [True]]),
    ("descriptor", "l_schedule", ["2", [2.0], [1, 2]]),
    ("descriptor", "activation_function", [None, 3, "swash"]),
    ("descriptor", "basis_type", [None, "wavelet"]),
    ("descriptor", "precision", [None, "float16"]),
    ("fitting_net", "neuron", ["8", 8, [-8], [8.0]]),
    ("fitting_net", "numb_fparam", ["1", -1, None]),
    ("fitting_net", "activation_function", [None, "swash"]),
    ("fitting_net", "precision", ["bfloat16", None]),
    ("model", "pair_exclude_types", ["HH", [[0]], [[0, 9]], [[-1, 0]], [0, 1], 5]),
    ("model", "atom_exclude_types", [[6], [-1], ["H"], 3]),
    ("fitting_net", "atom_ener", [True, "1"]),
    ("model", "bridging_method", ["morse", "", [], torch.ones(2)]),
):
    for value_ in values_:
        wrong_option(section_, option_, value_)


# Tensors that do not fit.


@changed("it lacks fitting.output_layer.matrix")
def missing_tensor(content):
    del content.state[OUTPUT]


@changed(r"it holds \S*descriptor\.surprise, which nothing uses")
def extra_tensor(content):
    content.state[DESCRIPTOR + "surprise"] = torch.ones(2)


@changed("two of its tensors are one parameter")
def parameter_twice(content):
    content.state["model.Default.out_bias"] = content.state[OUT_BIAS]


@changed(r"has shape \(7, 2\), its options ask for")
def wrong_shape(content):
    content.state[TYPE_EMBEDDING] = torch.ones(7, 2)


@changed("is not finite")
def not_a_number(content):
    content.state[OUTPUT] = content.state[OUTPUT].clone()
    content.state[OUTPUT][0] = torch.nan


@changed("is not finite")
def infinite_energy(content):
    content.state[OUT_BIAS] = torch.full_like(content.state[OUT_BIAS], torch.inf)


@changed("holds torch.int64 in the place")
def integers_for_weights(content):
    content.state[OUTPUT] = content.state[OUTPUT].to(torch.int64)


@changed("holds torch.complex64 in the place")
def complex_weights(content):
    content.state[OUTPUT] = content.state[OUTPUT].to(torch.complex64)


@changed("is stored without all its numbers")
def sparse_weights(content):
    content.state[OUTPUT] = content.state[OUTPUT].to_sparse()


@changed("is stored without all its numbers")
def weights_without_data(content):
    content.state[OUTPUT] = content.state[OUTPUT].to("meta")


@changed("it lacks fitting.output_layer.matrix")
def list_for_a_tensor(content):
    content.state[OUTPUT] = content.state[OUTPUT].tolist()


@changed("is of format version 7")
def newer_version(content):
    content.state[DESCRIPTOR + "version_tensor"] = torch.tensor(7.0)


@changed("adapts no weight")
def adapter_of_nothing(content):
    content.state[DESCRIPTOR + "surprise.A_by_l"] = torch.ones(1, 2, 3)
