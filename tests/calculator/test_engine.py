"""Forces and virials put together from the gradient of any energy."""

import numpy as np
import pytest
import torch
from ase import Atoms

from dp_calc import Settings
from dp_calc.engine import Engine
from dp_calc.neighbors import EdgeBuilder
from dp_calc.structure import Structure

WEIGHTS = torch.tensor([1.0, -0.4], dtype=torch.float64)
STIFFNESS = torch.tensor([[1.0, 0.2, 0], [0.2, 2, 0.7], [0, 0.7, -1.5]]).double()


class OneSided(torch.nn.Module):
    """Each edge's energy depends on its destination: no symmetry between its ends."""

    type_map = ("H", "O")
    device = torch.device("cpu")

    def forward(self, types, edges, conditions):
        quadratic = (edges.vec @ STIFFNESS * edges.vec).sum(1) / 2
        return edges.sum_at_dst(WEIGHTS[types[edges.dst]] * quadratic)


@pytest.fixture
def system():
    positions = np.random.default_rng(0).random((5, 3)) * 3
    atoms = Atoms("HOHHO", positions, cell=[3, 3.2, 2.8], pbc=(True, True, False))
    structure = Structure.from_atoms(atoms, {"H": 0, "O": 1})
    edges = EdgeBuilder(2.9, 0.0, torch.device("cpu")).build(structure)
    return structure.types, edges


def test_every_edge_is_shared_by_its_two_ends(system):
    types, edges = system
    forces, virials = np.zeros((5, 3)), np.zeros((5, 3, 3))
    for i, j, vec in zip(edges.dst, edges.src, edges.vec.numpy(), strict=True):
        gradient = float(WEIGHTS[types[i]]) * STIFFNESS.numpy() @ vec
        forces[i] += gradient
        forces[j] -= gradient
        virials[i] -= np.outer(gradient, vec) / 2
        virials[j] -= np.outer(gradient, vec) / 2
    outputs = Engine(OneSided(), Settings()).evaluate(types, edges)
    np.testing.assert_allclose(outputs.forces, forces, atol=1e-12)
    np.testing.assert_allclose(outputs.atomic_virials, virials, atol=1e-12)
    np.testing.assert_allclose(outputs.virial, virials.sum(0), atol=1e-12)
    assert outputs.energy == outputs.energies.sum()


def test_within_no_grad(system):
    engine = Engine(OneSided(), Settings())
    expected = engine.evaluate(*system).forces
    with torch.no_grad():
        forces = engine.evaluate(*system).forces
    assert torch.equal(forces, expected)
    assert not forces.requires_grad


def test_edges_are_left_as_they_were(system):
    types, edges = system
    Engine(OneSided(), Settings()).evaluate(types, edges)
    assert not edges.vec.requires_grad
    assert edges.vec.grad is None


def test_an_energy_without_any_dependence_on_the_edges_is_an_error(system):
    model = OneSided()
    model.forward = lambda types, edges, conditions: WEIGHTS[types]
    with pytest.raises(RuntimeError, match="does not require grad"):
        Engine(model, Settings()).evaluate(*system)
