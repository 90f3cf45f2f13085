"""Compressed models: the same energies, forces and Hessians from tables."""

import copy

import numpy as np
import pytest
import torch
from dp_calc.models import EdgeList, load_model
from dp_calc.models.classic.compress import compress
from reference import DATA, Structure, edges, evaluate, structures

FOLDER = DATA / "classic"
ONE_SIDED = ["se_e2_a", "se_e2_a_twoside", "se_e2_a_resnetdt", "se_e2_a_options",
             "se_e2_r", "se_e2_r_options", "dpa1_strip_attn0", "dpa1_strip_oneside_excl",
             "dpa1_options"]  # fmt: skip
TWO_SIDED = ["se_e3", "se_e3_options", "se_e3_tebd", "se_e3_tebd_options"]
TRAINED = ["se_e2_a", "se_e2_a_twoside", "se_e2_a_resnetdt", "se_e2_r", "se_e3",
           "se_e3_tebd", "dpa1_strip_attn0", "dpa1_strip_oneside_excl"]  # fmt: skip


def load(name, dtype=None):
    return load_model(FOLDER / f"{name}.pt", dtype=dtype)


def difference(name, one, other):
    """Largest differences in energies and forces over the structures of a file."""
    results = [(evaluate(one, s), evaluate(other, s)) for s in structures(name, FOLDER)]
    energies = max(np.abs(a.energies - b.energies).max() for a, b in results)
    forces = max(np.abs(a.forces - b.forces).max() for a, b in results)
    return energies, forces


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [(name, 1e-11) for name in ONE_SIDED] + [(name, 2e-7) for name in TWO_SIDED],
)
def test_energies_and_forces_agree_with_the_nets(name, tolerance):
    model = load(name)
    energies, forces = difference(name, model, compress(model))
    assert energies < tolerance / 100
    assert 0 < forces < tolerance


@pytest.mark.parametrize(
    "name", ["se_e2_a", "se_e2_r", "se_e3", "se_e3_tebd", "dpa1_options", "dpa1_f32"]
)
def test_float32_agrees_within_its_precision(name):
    model = load(name, torch.float32)
    compressed = compress(model)
    assert compressed.dtype == torch.float32
    energies, forces = difference(name, load(name, torch.float64), compressed)
    assert energies < 1e-5
    assert forces < 1e-4


@pytest.mark.parametrize("name", TRAINED)
def test_hessian_agrees(name, cluster, hessian):
    structure = cluster(name)
    expected = structure.expected["hessian"]
    result = hessian(compress(load(name)), structure)
    tolerance = 1e-5 if name in TWO_SIDED else 1e-9
    assert np.abs(result - expected).max() < tolerance * np.abs(expected).max()
    np.testing.assert_allclose(result, result.T, atol=1e-12)
    total = result.reshape(15, 5, 3).sum(1)  # moving all atoms together
    assert np.abs(total).max() < 1e-12


@pytest.mark.parametrize("name", ["se_e2_a", "se_e3", "se_e3_tebd"])
def test_half_the_stride_has_a_small_fraction_of_the_error(name):
    model = load(name)
    coarse, fine = (
        difference(name, model, compress(model, stride, coarse_stride=0.1))[1]
        for stride in (0.05, 0.025)
    )
    assert coarse > 15 * fine > 0


@pytest.mark.parametrize("scale", [2.0, 4.0])
@pytest.mark.parametrize("name", ["se_e3", "se_e3_tebd"])
def test_each_centre_type_may_have_its_own_scale(name, scale):
    """The range of a table is that of all centres, not that of the neighbour's type."""
    model = load(name)
    model.descriptor.environment.stddev[1] *= scale
    assert difference(name, model, compress(model, 0.005))[1] < 1e-8


@pytest.mark.parametrize("name", ["se_e2_a", "dpa1_strip_attn0", "se_e3"])
def test_gradients_of_a_force_loss_agree(name, cluster, energy_of_positions):
    structure, gradients = cluster(name), []
    for model in (load(name), compress(load(name))):
        weights = [p.requires_grad_() for p in model.fitting.parameters()]
        positions = torch.tensor(structure.positions).reshape(-1).requires_grad_()
        energy = energy_of_positions(model, structure)(positions)
        (slope,) = torch.autograd.grad(energy, positions, create_graph=True)
        loss = slope.square().sum()
        parts = torch.autograd.grad(loss, weights, materialize_grads=True)
        gradients.append(torch.cat([g.flatten() for g in parts]))
    dense, tabulated = gradients
    assert dense.abs().max() > 1e-4
    assert (dense - tabulated).abs().max() < 1e-7 * dense.abs().max()


@pytest.mark.parametrize("name", ["se_e2_a", "se_e2_r", "se_e3", "se_e3_tebd", "dpa1_v2"])
def test_few_or_no_neighbours(name):
    model = compress(load(name))
    nothing = torch.zeros(0, dtype=torch.int64)
    for types in (nothing, torch.tensor([1, 0, 1])):
        none = EdgeList.from_sorted(
            nothing, nothing, torch.zeros(0, 3).double(), len(types)
        )
        energies = model(types, none)
        assert energies.shape == types.shape
        torch.testing.assert_close(energies, load(name)(types, none))


@pytest.mark.parametrize("name", ["se_e2_a", "se_e3", "dpa1_strip_attn0"])
def test_atoms_closer_than_in_training_continue_the_net(name):
    """Up to a fifth of the shortest distance the coarse rows take over."""
    model = load(name)
    compressed = compress(model, 0.002)
    positions = np.array([[0.0, 0, 0], [1.2, 0, 0], [0, 1.4, 0.3]])
    no_cell, no_pbc = np.zeros((3, 3)), np.zeros(3, dtype=bool)
    structure = Structure("close", ("Na", "Cl", "Na"), positions, no_cell, no_pbc, {}, {})
    dense, tabulated = evaluate(model, structure), evaluate(compressed, structure)
    assert np.linalg.norm(positions[1]) < model.min_nbor_dist
    assert 0 < np.abs(dense.forces - tabulated.forces).max() < 1e-7


def test_a_neighbour_at_the_cutoff_hides_no_other():
    """In float32 its row is all zeros, like a free place, but others come after it."""
    name = "dpa1_strip_oneside_excl"
    model = load(name, torch.float32)
    model.descriptor.environment.stddev *= 30  # the row vanishes on every processor
    compressed = compress(model)
    near = [[0.0, 2.0, 0.0], [0.0, 2.2, 2.1]]
    beyond = [[0.0, 4.4, 1.0], [1.5, 4.3, 1.0]]  # for a free place in the row of atom 0
    positions = np.array([[0.0, 0, 0], [np.nextafter(4.2, 0), 0, 0], *near, *beyond])
    no_cell, no_pbc = np.zeros((3, 3)), np.zeros(3, dtype=bool)
    structure = Structure("edge", ("Na",) * 6, positions, no_cell, no_pbc, {}, {})
    graph = edges(structure, 4.2)
    assert torch.bincount(graph.dst).tolist() == [3, 1, 4, 4, 3, 3]
    dense, tabulated = evaluate(model, structure), evaluate(compressed, structure)
    np.testing.assert_allclose(tabulated.energies, dense.energies, rtol=0, atol=1e-5)
    np.testing.assert_allclose(tabulated.forces, dense.forces, rtol=0, atol=1e-5)


def test_the_model_itself_is_left_as_it_is():
    model = load("dpa1_strip_attn0")
    before = copy.deepcopy(model.state_dict())
    compressed = compress(model)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert compressed.source == model.source
    assert not any(p.requires_grad for p in compressed.parameters())
    assert not any(
        "layers" in name for name in compressed.descriptor.embeddings.state_dict()
    )


def test_strides_and_range_are_those_asked_for():
    model = load("se_e2_a")
    one = compress(model, 0.02, 3.0, coarse_stride=0.1).descriptor.embeddings["0"].domain
    assert (one.fine, one.coarse, one.right) == (0.02, 0.1, 3 * one.upper)
    wide = compress(model, min_nbor_dist=0.9).descriptor.embeddings["0"].domain
    assert wide.upper > one.upper
    model = load("se_e3")
    two = compress(model, 0.02, coarse_stride=0.05).descriptor.embeddings["0"].domain
    assert (two.fine, two.coarse, two.lower) == (0.2, 0.5, -two.upper)


def test_what_cannot_be_compressed_is_told():
    with pytest.raises(ValueError, match="DPA4 model has no embedding nets"):
        compress(load_model(DATA / "plain.pt"))
    with pytest.raises(ValueError, match="tebd_input_mode='concat'"):
        compress(load("dpa1_concat"))
    with pytest.raises(ValueError, match="compressed already"):
        compress(compress(load("se_e2_a")))
    with pytest.raises(ValueError, match="do not divide"):
        compress(load("se_e2_a"), stride=0.03)
    with pytest.raises(ValueError, match="extrapolation factor above 1"):
        compress(load("se_e2_a"), extrapolate=1.0)
    with pytest.raises(ValueError, match="between 0 and the cutoff"):
        compress(load("se_e2_a"), min_nbor_dist=4.2)


def test_the_shortest_distance_must_be_known():
    model = load("se_e2_a")
    model.min_nbor_dist = None
    with pytest.raises(ValueError, match="give min_nbor_dist"):
        compress(model)
    assert compress(model, min_nbor_dist=1.7).descriptor is not model.descriptor
