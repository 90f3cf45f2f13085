"""What must hold for every model: invariance, locality, smoothness, all derivatives."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from dp_calc.models import EdgeList, load_model
from reference import DATA, edges, evaluate, structures
from scipy.spatial.transform import Rotation

NAMES = ["heads", "neo_narrow", "plain"]


@pytest.fixture(params=NAMES)
def model(request):
    return load_model(DATA / f"{request.param}.pt", dtype=torch.float64)


@pytest.fixture
def structure():
    return next(s for s in structures("heads") if s.name == "triclinic")


def test_rotating_a_structure_rotates_forces_and_virial(model, structure):
    turn = Rotation.from_rotvec([0.4, -1.1, 0.7]).as_matrix()
    turned = replace(
        structure, positions=structure.positions @ turn.T, cell=structure.cell @ turn.T
    )
    before, after = evaluate(model, structure), evaluate(model, turned)
    np.testing.assert_allclose(after.energies, before.energies, atol=1e-11)
    np.testing.assert_allclose(after.forces, before.forces @ turn.T, atol=1e-10)
    np.testing.assert_allclose(after.virial, turn @ before.virial @ turn.T, atol=1e-9)


def test_relabelling_atoms_relabels_results(model, structure):
    order = np.random.default_rng(3).permutation(len(structure.symbols))
    shuffled = replace(
        structure,
        symbols=tuple(structure.symbols[i] for i in order),
        positions=structure.positions[order],
    )
    before, after = evaluate(model, structure), evaluate(model, shuffled)
    np.testing.assert_allclose(after.energies, before.energies[order], atol=1e-11)
    np.testing.assert_allclose(after.forces, before.forces[order], atol=1e-10)


def test_forces_sum_to_zero_and_virial_is_symmetric(model, structure):
    result = evaluate(model, structure)
    assert np.abs(result.forces.sum(0)).max() < 1e-12
    np.testing.assert_allclose(result.virial, result.virial.T, atol=1e-10)


def test_edges_beyond_the_cutoff_contribute_nothing(model, structure):
    types = torch.tensor([model.type_map.index(s) for s in structure.symbols])
    near, far = edges(structure, model.rcut), edges(structure, model.rcut + 1.0)
    assert far.n_edges > near.n_edges
    for graph in (near, far):
        graph.vec.requires_grad_(True)
    values = [model(types, graph) for graph in (near, far)]
    torch.testing.assert_close(values[0], values[1], rtol=0, atol=1e-12)
    gradient = torch.autograd.grad(values[1].sum(), far.vec)[0]
    beyond = far.vec.norm(dim=1) > model.rcut
    assert gradient[beyond].abs().max() == 0


def test_energy_is_smooth_where_an_atom_crosses_the_cutoff(model):
    """The third difference of the energy of a dimer stays small across the cutoff."""
    types = torch.tensor([0, 2])
    src, dst = torch.tensor([1, 0]), torch.tensor([0, 1])

    def energy(r):
        vec = torch.tensor([[0.0, 0.6 * r, 0.8 * r], [0.0, -0.6 * r, -0.8 * r]])
        graph = EdgeList.from_sorted(src, dst, vec.double(), 2)
        return model(types, graph).sum().item()

    step = 1e-3
    values = np.array([energy(model.rcut + i * step) for i in range(-8, 5)])
    third = np.abs(np.diff(values, 3)) / step**3
    assert third.max() < 5.0
    assert third[-1] == 0


def small_graph(model):
    """Three atoms with all pairs: types, a function of positions, positions."""
    types = torch.tensor([0, 1, 2])
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    dst, src = torch.tensor(pairs).T
    positions = torch.tensor([[0.0, 0, 0], [1.3, 0.4, 0], [0.2, 1.2, 0.9]]).double()

    def energy(x):
        graph = EdgeList.from_sorted(src, dst, x[src] - x[dst], 3)
        return model(types, graph).sum()

    return energy, positions.requires_grad_(True)


def test_first_and_second_derivatives_agree_with_finite_differences(model):
    energy, positions = small_graph(model)
    assert torch.autograd.gradcheck(energy, positions, atol=1e-7)
    assert torch.autograd.gradgradcheck(energy, positions, atol=1e-6)


def test_third_derivatives_agree_with_finite_differences(model):
    energy, positions = small_graph(model)
    direction = torch.randn(3, 3, generator=torch.Generator().manual_seed(1)).double()

    def curvature(x, create_graph=False):
        slope = torch.autograd.grad(energy(x), x, create_graph=True)[0]
        along = (slope * direction).sum()
        second = torch.autograd.grad(along, x, create_graph=create_graph)[0]
        return (second * direction).sum()

    third = torch.autograd.grad(curvature(positions, True), positions)[0]
    step = 2e-5 * direction
    moved = [(positions + s * step).detach().requires_grad_(True) for s in (1, -1)]
    expected = (curvature(moved[0]) - curvature(moved[1])) / 4e-5
    assert (third * direction).sum().item() == pytest.approx(expected.item(), rel=1e-5)


def test_derivatives_exist_for_an_edge_at_the_cutoff_in_float32():
    """Where the envelope underflows, second derivatives must be zero and not NaN."""
    model = load_model(DATA / "heads.pt")
    types = torch.tensor([0, 2, 1])
    dst, src = torch.tensor([(0, 1), (0, 2), (1, 0), (2, 0)]).T
    for gap in (0.0, 1e-7, 1e-6, 1e-5, 1e-4):
        far, near = [0, 0, model.rcut - gap], [1.0, 0.5, 0]
        vec = torch.tensor([far, near]).double()
        vec = torch.cat([vec, -vec]).requires_grad_(True)
        total = model(types, EdgeList.from_sorted(src, dst, vec, 3)).sum()
        first = torch.autograd.grad(total, vec, create_graph=True)[0]
        second = torch.autograd.grad(first.square().sum(), vec)[0]
        assert torch.isfinite(first).all()
        assert torch.isfinite(second).all()


def test_distant_fragments_do_not_see_each_other(model):
    molecule = next(s for s in structures("heads") if s.name == "molecule")
    twice = replace(
        molecule,
        symbols=molecule.symbols * 2,
        positions=np.concatenate([molecule.positions, molecule.positions + 100.0]),
    )
    one, two = evaluate(model, molecule), evaluate(model, twice)
    np.testing.assert_allclose(two.energies, np.tile(one.energies, 2), atol=1e-12)
    np.testing.assert_allclose(two.forces, np.tile(one.forces, (2, 1)), atol=1e-11)


def test_evaluation_is_repeatable_to_the_last_bit(structure):
    model = load_model(DATA / "neo_narrow.pt")
    results = [evaluate(model, structure) for _ in range(3)]
    for other in results[1:]:
        np.testing.assert_array_equal(other.energies, results[0].energies)
        np.testing.assert_array_equal(other.forces, results[0].forces)
        np.testing.assert_array_equal(other.virial, results[0].virial)


def test_loading_and_evaluating_leave_global_state_alone(structure):
    before = torch.get_rng_state(), torch.get_default_dtype(), torch.get_num_threads()
    evaluate(load_model(DATA / "plain.pt"), structure)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (torch.get_default_dtype(), torch.get_num_threads()) == before[1:]


def test_parameters_are_frozen_and_biases_stay_float64():
    model = load_model(DATA / "plain.pt")
    assert not any(p.requires_grad for p in model.parameters())
    assert model.out_bias.dtype == model.fitting_bias.dtype == torch.float64
