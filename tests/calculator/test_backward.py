"""The streaming backward gives what the native one gives."""

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import molecule
from dp_calc.models import StreamExecutor, load_model, make_cohorts
from dp_calc.models.cohorts import TILE
from reference import DATA, edges, structures

from dp_calc import DP


def atoms_of(structure):
    return Atoms(
        structure.symbols, structure.positions, cell=structure.cell, pbc=structure.pbc
    )


@pytest.mark.parametrize(
    ("name", "cohort_edges"),
    [
        ("heads", 1024),
        ("neo_narrow", 2048),
        ("zero_block", 512),
        ("plain", 8192),
        ("exclude", 8192),
        ("version10", 8192),
    ],
)
def test_stream_equals_native_in_float64(name, cohort_edges):
    path = DATA / f"{name}.pt"
    native = DP(path, dtype="float64", device="cpu", backward="native")
    stream = DP(
        path, dtype="float64", device="cpu", backward="stream", cohort_edges=cohort_edges
    )
    for structure in structures(name):
        atoms = atoms_of(structure)
        for calc in (native, stream):
            calc.calculate(atoms)
        for key, value in native.results.items():
            np.testing.assert_allclose(stream.results[key], value, rtol=0, atol=1e-10)


def test_stream_equals_native_in_float32():
    path = DATA / "neo_narrow.pt"
    native = DP(path, device="cpu", backward="native")
    stream = DP(path, device="cpu", backward="stream", cohort_edges=2048)
    for structure in structures("neo_narrow"):
        atoms = atoms_of(structure)
        native.calculate(atoms)
        stream.calculate(atoms)
        forces = native.results["forces"]
        largest = max(1.0, np.abs(forces).max())
        np.testing.assert_allclose(
            stream.results["forces"], forces, rtol=0, atol=2e-6 * largest
        )


def executor(edges, view, cohort_edges, rcut, dtype):
    return StreamExecutor(
        edges, view, make_cohorts(edges, cohort_edges, dtype), 3, 2 * rcut
    )


@pytest.mark.parametrize("name", ["heads", "plain"])
def test_gradcheck_across_cohort_boundaries(name):
    """Atoms without an edge, with one, and with more edges than a cohort."""
    model = load_model(DATA / f"{name}.pt", dtype=torch.float64)
    structure = next(s for s in structures(name) if s.name == "molecule")
    graph = edges(structure, 2.0)
    assert graph.row_ptr.diff().max() < TILE < graph.n_edges
    types = torch.tensor([model.type_map.index(s) for s in structure.symbols])

    def energy(vec):
        return model(
            types,
            graph.with_vec(vec),
            executor=lambda e, v: executor(e, v, 2 * TILE, model.rcut, model.dtype),
        )

    vec = graph.vec.clone().requires_grad_()
    assert torch.autograd.gradcheck(energy, vec, atol=1e-7, fast_mode=True)


def test_a_destination_may_have_more_edges_than_a_cohort():
    structure = next(s for s in structures("heads") if s.name == "dense_mix")
    graph = edges(structure, 4.6)
    cohorts = make_cohorts(graph, TILE, torch.float64)
    largest = int(graph.row_ptr.diff().max())
    assert all(len(c.edge) == -(-largest // TILE) * TILE for c in cohorts)
    held = torch.cat([c.edge[c.real > 0] for c in cohorts])
    assert torch.equal(held.sort().values, torch.arange(graph.n_edges))


@pytest.mark.parametrize(
    "degrees", [[], [0], [1], [37], [16, 0, 17], [8191, 1], [0, 33, 0]]
)
def test_cohorts_hold_every_edge_once_at_its_destination(degrees):
    from dp_calc.models import EdgeList

    dst = torch.repeat_interleave(
        torch.arange(len(degrees)), torch.tensor(degrees).long()
    )
    n_atoms = max(len(degrees), 1)
    src = torch.arange(len(dst)) % n_atoms
    graph = EdgeList.from_sorted(src, dst, torch.randn(len(dst), 3).double(), n_atoms)
    seen = []
    for cohort in make_cohorts(graph, 64, torch.float64):
        real = cohort.real > 0
        row = cohort.tile_row.repeat_interleave(TILE)[real]
        assert torch.equal(cohort.atoms[row], dst[cohort.edge[real]])
        assert torch.equal(cohort.src[real], src[cohort.edge[real]])
        seen.append(cohort.edge[real])
    assert torch.equal(torch.cat(seen), torch.arange(len(dst)))


def test_second_derivatives_through_the_stream_are_refused():
    model = load_model(DATA / "heads.pt", dtype=torch.float64)
    structure = next(s for s in structures("heads") if s.name == "molecule")
    graph = edges(structure, model.rcut)
    graph.vec.requires_grad_()
    types = torch.tensor([model.type_map.index(s) for s in structure.symbols])
    energies = model(
        types, graph, executor=lambda e, v: executor(e, v, 64, model.rcut, model.dtype)
    )
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(energies.sum(), graph.vec, create_graph=True)


def test_padding_cannot_leak():
    """What padding slots hold changes nothing, down to the last bit."""
    model = load_model(DATA / "neo_narrow.pt")
    structure = next(s for s in structures("neo_narrow") if s.name == "molecule")
    types = torch.tensor([model.type_map.index(s) for s in structure.symbols])
    results = []
    for far in (2 * model.rcut, 50 * model.rcut):
        graph = edges(structure, model.rcut)
        graph.vec.requires_grad_()
        cohorts = make_cohorts(graph, 256, torch.float32)
        energies = model(
            types,
            graph,
            executor=lambda e, v, c=cohorts, far=far: StreamExecutor(e, v, c, 4, far),
        )
        gradient = torch.autograd.grad(energies.sum(), graph.vec)[0]
        results.append((energies.detach(), gradient))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_auto_streams_what_would_not_fit(monkeypatch):
    calc = DP(DATA / "heads.pt", device="cpu")
    water = molecule("H2O")
    calc.calculate(water)
    assert calc._engine.backward.name == "native"
    monkeypatch.setattr("dp_calc.backward._memory", lambda device: 1000)
    calc.calculate(water)
    assert calc._engine.backward.name == "stream"
    assert "GB" in calc._engine.backward.why


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"backward": "cohort"}, "cannot be had: the kernels need a CUDA device"),
        ({"backward": "recompute"}, "must be"),
        ({"cohort_edges": 100}, "multiple of 16"),
        ({"cohort_edges": 0}, "multiple of 16"),
        ({"cohort_edges": True}, "multiple of 16"),
        ({"cohort_edges": "8192"}, "multiple of 16"),
    ],
)
def test_wrong_settings_are_refused(keywords, words):
    with pytest.raises(ValueError, match=words):
        DP(DATA / "heads.pt", device="cpu", **keywords)
