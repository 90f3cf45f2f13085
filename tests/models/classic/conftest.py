"""Second derivatives of the energy of a molecule, and changed copies of checkpoints."""

import numpy as np
import pytest
import torch
from reference import DATA, Structure, edges, structures
from torch.autograd.functional import hessian as autograd_hessian

FOLDER = DATA / "classic"


@pytest.fixture
def cluster():
    """A function from a file's name to its structure without a cell."""

    def find(name: str) -> Structure:
        return next(s for s in structures(name, FOLDER) if s.name == "cluster")

    return find


@pytest.fixture
def energy_of_positions():
    """A function from model and structure to the energy of flat positions (3N,)."""

    def energy_function(model, structure: Structure):
        types = torch.tensor([model.type_map.index(s) for s in structure.symbols])
        graph = edges(structure, model.rcut)

        def energy(flat: torch.Tensor) -> torch.Tensor:
            positions = flat.reshape(-1, 3)
            vec = positions[graph.src] - positions[graph.dst]
            return model(types, graph.with_vec(vec), structure.conditions).sum()

        return energy

    return energy_function


@pytest.fixture
def hessian(energy_of_positions):
    """A function from model and structure to the (3N, 3N) Hessian in eV/Å²."""

    def evaluate(model, structure: Structure) -> np.ndarray:
        positions = torch.tensor(structure.positions).reshape(-1)
        energy = energy_of_positions(model, structure)
        return autograd_hessian(energy, positions).numpy()

    return evaluate


@pytest.fixture
def altered(tmp_path):
    """A function that writes a changed copy of a checkpoint and gives its path."""

    def write(name, change):
        content = torch.load(FOLDER / f"{name}.pt", weights_only=True)
        state = content["model"]
        change(state["_extra_state"]["model_params"], state)
        path = tmp_path / "altered.pt"
        torch.save(content, path)
        return path

    return write
