"""Option values that are refused by name, before anything is built."""

import pytest
import torch
from checkpoints import DESCRIPTOR, Content
from dp_calc.models import UnsupportedOptionError, load_model

# Legal in the format, but not evaluated here: option in the message, further options.
NOT_SUPPORTED = [
    ("precision='float16'", {"precision": "float16"}),
    ("precision='bfloat16'", {"precision": "bfloat16"}),
    ("precision='half'", {"precision": "half"}),
    ("eps=1e-05", {"eps": 1e-5}),
    ("too coarse", {"s2_activation": [True, True], "lebedev_quadrature": False,
                    "l_schedule": [4], "mmax": None}),
    ("too coarse", {"node_wise_s2": True, "lebedev_quadrature": [False, True],
                    "l_schedule": [5, 4], "m_schedule": [0, 4]}),
]  # fmt: skip

# Rejected by the reference as well.
ILLEGAL = [
    ("basis_type='sinc'", {"basis_type": "sinc"}),
    ("activation_function='swish'", {"activation_function": "swish"}),
    ("activation_function='silut:x'", {"activation_function": "silut:x"}),
    ("so3_readout='branch'", {"so3_readout": "branch"}),
    ("node_cartesian='odd:1'", {"node_cartesian": "odd:1"}),
    ("env_exp=[7]", {"env_exp": [7]}),
    ("env_exp=[7, 0]", {"env_exp": [7, 0]}),
    ("sandwich_norm=[True]", {"sandwich_norm": [True]}),
    ("s2_activation=[True]", {"s2_activation": [True]}),
    ("lebedev_quadrature=[True]", {"lebedev_quadrature": [True]}),
    ("grid_mlp=[True]", {"grid_mlp": [True]}),
    ("grid_branch=-1", {"grid_branch": -1}),
    ("grid_branch=[0, 1]", {"grid_branch": [0, 1]}),
    ("default_chg_spin=[1.0]", {"default_chg_spin": [1.0]}),
    ("channels=0", {"channels": 0}),
    ("radial_mlp=[-1]", {"radial_mlp": [-1]}),
    ("rcut=0.0", {"rcut": 0.0}),
    ("eps=0.0", {"eps": 0.0}),
    ("lmax=-1", {"lmax": -1}),
    ("mmax=-1", {"mmax": -1}),
    ("kmax=3", {"kmax": 3, "l_schedule": [2, 2], "lmax": 4}),
    ("l_schedule=[1, 2]", {"l_schedule": [1, 2]}),
    ("m_schedule=[1, 2]", {"l_schedule": [2, 1], "m_schedule": [1, 2]}),
    ("m_schedule=[1]", {"l_schedule": [2, 1], "m_schedule": [1]}),
    ("n_focus=0", {"n_focus": 0}),
    ("n_atten_head=3", {"n_atten_head": 3}),
    ("n_atten_head=5", {"n_atten_head": 5, "n_focus": 2, "atten_f_mix": True}),
    ("ffn_blocks=0", {"ffn_blocks": 0}),
    ("n_blocks=10000000", {"n_blocks": 10**7}),
    ("channels=1000000000", {"channels": 10**9}),
    ("readout_layers=0", {"readout_layers": 0}),
    ("block_attn_res='dependent'", {"full_attn_res": "independent",
                                    "block_attn_res": "dependent"}),
    ("message_node_so3=True", {"edge_cartesian": True, "l_schedule": [3, 2],
                               "message_node_so3": True}),
]  # fmt: skip


def load(content, tmp_path):
    return load_model(content.save(tmp_path / "model.pt"))


@pytest.mark.parametrize(("named", "options"), NOT_SUPPORTED + ILLEGAL)
def test_the_error_names_the_option(named, options, tmp_path):
    content = Content()  # 8 channels, degree 2, no blocks
    content.params["descriptor"].update(options)
    with pytest.raises(UnsupportedOptionError) as error:
        load(content, tmp_path)
    assert named in str(error.value)


@pytest.mark.parametrize("name", ["sigmoid", "softplus"])
def test_energies_that_depend_on_the_order_of_atoms(name, tmp_path):
    """Old versions with an activation that is not zero at zero.

    There the reference adds something to the atom that comes first.
    """
    content = Content("version10")
    content.params["descriptor"]["activation_function"] = name
    with pytest.raises(UnsupportedOptionError, match="depend on which atom is first"):
        load(content, tmp_path)
    content.state[DESCRIPTOR + "version_tensor"] = torch.tensor(1.2, dtype=torch.float64)
    assert load(content, tmp_path).version == 1.2


def test_orders_of_a_coarse_grid_are_those_of_the_blocks(tmp_path):
    """Options that the schedules replace do not count."""
    content = Content()
    content.params["descriptor"].update(
        lebedev_quadrature=False, node_wise_s2=True, l_schedule=[], lmax=2, mmax=6
    )
    assert load(content, tmp_path).config.descriptor.schedule == ()


def test_spins_need_rows_of_degree_one(tmp_path):
    content = Content("spin_version11")
    content.params["descriptor"].update(lmax=0, l_schedule=None, extra_node_l=0, kmax=0)
    with pytest.raises(UnsupportedOptionError, match="at least 1 in a model with spins"):
        load(content, tmp_path)
