"""What must hold for every classic model: locality, smoothness, symmetry, derivatives."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from dp_calc.models import EdgeList, load_model
from dp_calc.models.classic.environment import switch
from reference import DATA, Structure, edges, evaluate, structures
from torch.autograd.functional import hvp, jvp

FOLDER = DATA / "classic"
NAMES = ["se_e2_a", "se_e2_a_options", "se_e2_r", "se_e3", "se_e3_tebd",
         "dpa1_strip_attn0", "dpa1_options", "dpa1_concat"]  # fmt: skip


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def model(name):
    return load_model(FOLDER / f"{name}.pt")


@pytest.fixture
def structure(name):
    """The periodic structure with the lowest symmetry."""
    periodic = [s for s in structures(name, FOLDER) if s.pbc.all()]
    return periodic[-1]


def types_of(model, structure):
    return torch.tensor([model.type_map.index(s) for s in structure.symbols])


def test_rotated_and_relabelled_atoms_have_the_same_energies(model, structure):
    rng = np.random.default_rng(5)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    order = rng.permutation(len(structure.symbols))
    changed = replace(
        structure,
        symbols=tuple(structure.symbols[i] for i in order),
        positions=structure.positions[order] @ turn,
        cell=structure.cell @ turn,
        conditions={k: v[order] for k, v in structure.conditions.items()},
    )
    before, after = evaluate(model, structure), evaluate(model, changed)
    np.testing.assert_allclose(after.energies, before.energies[order], atol=1e-12)
    np.testing.assert_allclose(after.forces, before.forces[order] @ turn, atol=1e-12)


def test_pairs_beyond_the_cutoff_contribute_exactly_nothing(model, structure):
    types = types_of(model, structure)
    near, far = edges(structure, model.rcut), edges(structure, model.rcut + 0.8)
    assert far.n_edges > near.n_edges
    vec = far.vec.clone().requires_grad_()
    energies = model(types, far.with_vec(vec), structure.conditions)
    assert torch.equal(energies, model(types, near, structure.conditions))
    (gradient,) = torch.autograd.grad(energies.sum(), vec)
    outside = far.vec.norm(dim=1) >= model.rcut
    assert gradient.isfinite().all()
    assert (gradient[outside] == 0).all()
    assert gradient[~outside].any()


def test_atoms_without_neighbours_have_a_constant_energy(model, structure):
    apart = replace(
        structure,
        positions=np.arange(len(structure.symbols))[:, None] * np.full(3, 20.0),
        pbc=np.zeros(3, dtype=bool),
    )
    result = evaluate(model, apart)
    assert np.isfinite(result.energies).all()
    assert (result.forces == 0).all()
    alone = replace(
        apart,
        symbols=structure.symbols[:1],
        positions=np.zeros((1, 3)),
        conditions={k: v[:1] for k, v in structure.conditions.items()},
    )
    np.testing.assert_allclose(evaluate(model, alone).energies, result.energies[:1])


def test_no_atoms_give_no_energies(model, structure):
    nothing = torch.zeros(0, dtype=torch.int64)
    graph = EdgeList.from_sorted(nothing, nothing, torch.zeros(0, 3).double(), 0)
    conditions = {k: v[:0] for k, v in structure.conditions.items()}
    assert model(nothing, graph, conditions).shape == (0,)


def test_third_derivatives_agree_with_differences(
    name, model, cluster, energy_of_positions
):
    energy = energy_of_positions(model, cluster(name))
    rng = torch.Generator().manual_seed(2)
    at = torch.tensor(cluster(name).positions).reshape(-1)
    along = torch.randn(len(at), generator=rng, dtype=torch.float64)

    def curvature(x):
        return hvp(energy, x, along, create_graph=True)[1]

    step = 1e-4
    ahead, behind = curvature(at + step * along), curvature(at - step * along)
    exact = jvp(curvature, at, along)[1]
    scale = exact.abs().max()
    assert scale > 1e-4
    assert ((ahead - behind) / (2 * step) - exact).abs().max() < 1e-5 * scale


def test_nothing_that_the_caller_owns_changes(model, structure):
    types, graph = types_of(model, structure), edges(structure, model.rcut)
    before = types.clone(), graph.vec.clone()
    model(types, graph, structure.conditions)
    assert torch.equal(types, before[0])
    assert torch.equal(graph.vec, before[1])
    assert not any(p.requires_grad for p in model.parameters())


def dimer(symbols, distance):
    positions = np.array([[0.0, 0.0, 0.0], [distance, 0.0, 0.0]])
    return Structure(
        "dimer", symbols, positions, np.zeros((3, 3)), np.zeros(3, bool), {}, {}
    )


@pytest.mark.parametrize("name", ["se_e2_a", "se_e2_r", "se_e3", "dpa1_strip_attn0"])
def test_the_energy_is_continuous_at_the_cutoff(name, model):
    inside, outside = (
        evaluate(model, dimer(("Na", "Cl"), model.rcut + shift))
        for shift in (-1e-9, 1e-9)
    )
    np.testing.assert_allclose(inside.energies, outside.energies, rtol=0, atol=1e-13)
    assert np.abs(inside.forces).max() < 1e-12


def test_the_switch_and_its_derivatives_end_at_zero():
    length = torch.tensor(
        [0.5, 1.0, 2.6, 4.2, 5.0], dtype=torch.float64, requires_grad=True
    )
    weight = switch(length, 1.0, 4.2)
    assert weight.tolist() == [1, 1, 0.5, 0, 0]
    (slope,) = torch.autograd.grad(weight.sum(), length, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), length)
    assert slope.detach()[[0, 1, 3, 4]].abs().max() == 0
    assert slope[2].item() == pytest.approx(-15 / 8 / 3.2)
    assert bend[[0, 1, 3, 4]].abs().max() == 0


def test_the_switch_is_positive_up_to_the_cutoff():
    below = np.nextafter(4.2, 0)
    assert switch(torch.tensor(below), 1.0, 4.2) > 0
