"""Why the kernels do not run a model: a clause for each obstacle, in plain words."""

import pytest
import torch
from dp_calc.models import load_model
from dp_calc.models.dpa4.fusible import why_not_fused
from reference import DATA
from widened import in_float32, widened

FRAMES = "the messages are not formed in the frames of the edges"
ORDERS = "orders up to 1 are needed in the frames of the edges"
LAYERS = "the options of the SO(2) layers are not covered"
HISTORY = "the model has attention over its blocks"
WIDTH = "the streams have another width than 16, 32, 64 or 128 channels"
ATTENTION = "the maps of the attention are not covered"
RADIAL = "the radial kernels are not covered"
DEGREES = "degrees above 4 are not covered"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("classic/se_e2_a", "there are none for se_e2_a models"),
        ("classic/dpa1_f32", "there are none for dpa1 models"),
        ("zero_block", "the model has no interaction blocks"),
        ("options/case_embedding", "the model has no interaction blocks"),
        ("options/bridged_spins", HISTORY),
        ("options/three_blocks", HISTORY),
        ("options/cartesian_unmixed", FRAMES),
        ("options/direct_messages", FRAMES),
        ("options/parity_products", ORDERS),
        ("options/older_names", ORDERS),
        ("options/version_one", DEGREES),
        ("options/one_branch", LAYERS),
        ("options/product_grid_nodes", LAYERS),
        ("options/widths_without_glu", WIDTH),
        ("neo_narrow", WIDTH),
    ],
)
def test_files(name, why):
    assert why_not_fused(load_model(DATA / f"{name}.pt", dtype=torch.float32)) == why


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"radial_so2_rank": 0}, RADIAL),
        ({"atten_f_mix": True}, ATTENTION),
        ({"atten_v_proj": True}, ATTENTION),
        ({"atten_o_proj": True}, ATTENTION),
        ({"activation_function": "tanh"}, "the activation is not silu"),
        ({"lmax": 5}, DEGREES),
        ({"mmax": 0}, ORDERS),
        ({"mmax": 2}, ORDERS),
        ({"l_schedule": [2, 0]}, ORDERS),  # an obstacle of the second block only
        ({"mixing_layers": 0}, LAYERS),
        ({"so2_norm": True}, LAYERS),
        ({"layer_scale": True}, LAYERS),
        ({"mlp_bias": True}, LAYERS),
        ({"so2_attn_res": "independent"}, LAYERS),
        ({"node_wise_s2": True}, LAYERS),
        ({"full_attn_res": "independent"}, HISTORY),
        ({"edge_cartesian": True}, FRAMES),
        ({"channels": 24}, WIDTH),
        ({"channels": 32, "n_atten_head": 4}, WIDTH),  # of a head
        ({"n_blocks": 0}, "the model has no interaction blocks"),
    ],
    ids=str,
)
def test_options(options, why):
    model = widened("plain", **{"channels": 16, **options})
    assert why_not_fused(in_float32(model)) == why


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("plain", {"n_blocks": 1}),
        ("plain", {"radial_so2_mode": "degree"}),
        ("plain", {"radial_so2_rank": 2}),
        ("plain", {"channels": 32, "n_atten_head": 2}),
        ("plain", {"n_focus": 2, "focus_dim": 32}),
        ("nano_narrow", {}),
        ("neo_narrow", {}),
        ("neo_narrow", {"channels": 128, "n_blocks": 1}),
    ],
    ids=str,
)
def test_what_the_kernels_run(name, options):
    model = widened(name, **{"channels": 16, **options})
    assert why_not_fused(in_float32(model)) is None
    assert why_not_fused(model) == "they work in float32"


def test_released_size():
    assert (
        why_not_fused(load_model(DATA.parents[1] / "dp_calc/data/water_mini.pt")) is None
    )
