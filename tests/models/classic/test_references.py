"""Classic models against stored float64 references, and their second derivatives.

The references were computed with DeePMD-kit 3.2.0. ``tests/data/classic`` holds trained
models of two types, and models with random weights and three types that set the options
which those leave at their defaults.
"""

import numpy as np
import pytest
import torch
from dp_calc.models import load_model
from reference import DATA, edges, evaluate, structures

FOLDER = DATA / "classic"
TRAINED = ["se_e2_a", "se_e2_a_twoside", "se_e2_a_resnetdt", "se_e2_r", "se_e3",
           "se_e3_tebd", "dpa1_strip_attn0", "dpa1_strip_oneside_excl"]  # fmt: skip
RANDOM = ["se_e2_a_options", "se_e2_r_options", "se_e3_options", "se_e3_tebd_options",
          "se_e3_tebd_concat", "dpa1_options", "dpa1_concat", "dpa1_v2"]  # fmt: skip


def relative(value, expected):
    return np.abs(value - expected).max() / max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("name", TRAINED + RANDOM)
def test_float64_agrees_to_rounding(name):
    model = load_model(FOLDER / f"{name}.pt")
    assert model.dtype == torch.float64
    for structure in structures(name, FOLDER):
        result, expected = evaluate(model, structure), structure.expected
        assert relative(result.energies.sum(), expected["energy"]) < 1e-12
        assert relative(result.energies, expected["energies"]) < 1e-12
        assert relative(result.forces, expected["forces"]) < 1e-12
        assert relative(result.virial, expected["virial"]) < 1e-12


@pytest.mark.parametrize("name", [*TRAINED, *RANDOM, "dpa1_f32"])
def test_float32_agrees_within_its_precision(name):
    model = load_model(FOLDER / f"{name}.pt", dtype=torch.float32)
    assert model.dtype == torch.float32
    for structure in structures(name, FOLDER):
        result, expected = evaluate(model, structure), structure.expected
        assert result.energies.dtype == np.float64
        assert relative(result.energies, expected["energies"]) < 1e-5
        assert relative(result.forces, expected["forces"]) < 1e-5


def test_a_file_in_float32_gives_a_float32_model():
    model = load_model(FOLDER / "dpa1_f32.pt")
    assert model.dtype == torch.float32
    widened = load_model(FOLDER / "dpa1_f32.pt", dtype=torch.float64)
    for structure in structures("dpa1_f32", FOLDER):
        narrow, wide = evaluate(model, structure), evaluate(widened, structure)
        assert 0 < relative(narrow.forces, wide.forces) < 1e-5


@pytest.mark.parametrize("name", TRAINED)
def test_hessian_agrees(name, cluster, hessian):
    model = load_model(FOLDER / f"{name}.pt")
    structure = cluster(name)
    expected = structure.expected["hessian"]
    error = np.abs(hessian(model, structure) - expected).max()
    assert error < 1e-12 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("name", TRAINED)
def test_descriptors_agree(name):
    model = load_model(FOLDER / f"{name}.pt")
    for structure in structures(name, FOLDER):
        types = torch.tensor([model.type_map.index(s) for s in structure.symbols])
        result = model.descriptors(types, edges(structure, model.rcut)).numpy()
        assert relative(result, structure.expected["descriptor"]) < 1e-12


@pytest.mark.parametrize("name", ["se_e2_a_twoside", "dpa1_v2"])
def test_the_last_hidden_layer_leads_to_the_energy(name):
    model = load_model(FOLDER / f"{name}.pt")
    structure = structures(name, FOLDER)[0]
    types = torch.tensor([model.type_map.index(s) for s in structure.symbols])
    graph, nets = edges(structure, model.rcut), model.fitting.networks
    hidden = model.last_hidden(types, graph)
    net_of_atom = [nets[t if len(nets) > 1 else 0] for t in types]
    output = [n.layers[-1](h) for n, h in zip(net_of_atom, hidden, strict=True)]
    energies = (
        torch.cat(output) + model.fitting_bias[types, 0] + model.out_bias[0, types, 0]
    )
    torch.testing.assert_close(energies, model(types, graph), rtol=1e-13, atol=1e-13)


def test_without_a_hidden_layer_the_last_one_is_the_descriptor():
    model = load_model(FOLDER / "se_e2_r_options.pt")
    structure = structures("se_e2_r_options", FOLDER)[0]
    types = torch.tensor([model.type_map.index(s) for s in structure.symbols])
    graph = edges(structure, model.rcut)
    assert torch.equal(model.last_hidden(types, graph), model.descriptors(types, graph))
