"""Descriptors and the last hidden layer against stored references."""

import numpy as np
import pytest
import torch
from dp_calc.models import load_model
from reference import DATA, edges, evaluate, structures

with np.load(DATA / "embeddings.ref.npz") as stored:
    REFERENCE = {key: stored[key] for key in stored.files}
CASES = sorted({tuple(key.split("/")[:2]) for key in REFERENCE})


def inputs(model, structure):
    types = torch.tensor([model.type_map.index(s) for s in structure.symbols])
    return types, edges(structure, model.rcut), structure.conditions


@pytest.mark.parametrize(("name", "structure"), CASES)
def test_embeddings_agree_with_the_reference(name, structure):
    model = load_model(DATA / f"{name}.pt", dtype=torch.float64)
    arguments = inputs(model, next(s for s in structures(name) if s.name == structure))
    expected = REFERENCE[f"{name}/{structure}/descriptor"]
    assert abs(model.descriptors(*arguments).numpy() - expected).max() < 1e-9
    expected = REFERENCE[f"{name}/{structure}/atomic_feature"]
    assert abs(model.last_hidden(*arguments).numpy() - expected).max() < 1e-9


@pytest.mark.parametrize("name", ["plain", "fitting"])
def test_energies_are_a_linear_function_of_the_last_hidden_layer(name):
    model = load_model(DATA / f"{name}.pt", dtype=torch.float64)
    structure = structures(name)[2]
    arguments = inputs(model, structure)
    types, hidden = arguments[0], model.last_hidden(*arguments)
    energies = model.fitting.output_layer(hidden)[:, 0] + model.fitting_bias[types, 0]
    energies = (energies + model.out_bias[0, types, 0]).numpy()
    assert abs(energies - evaluate(model, structure).energies).max() < 1e-9


def test_embeddings_have_the_precision_of_the_model():
    model = load_model(DATA / "plain.pt")
    arguments = inputs(model, structures("plain")[2])
    assert model.descriptors(*arguments).dtype == torch.float32
    assert model.last_hidden(*arguments).dtype == torch.float32
