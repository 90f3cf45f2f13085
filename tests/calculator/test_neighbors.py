"""Pairs from every search equal those of plain loops, in one canonical order."""

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from ase.neighborlist import (
    NeighborList,
    NewPrimitiveNeighborList,
    PrimitiveNeighborList,
)

from dp_calc import DP
from dp_calc.neighbors import EdgeBuilder
from dp_calc.structure import Structure

TYPES = {"H": 0, "O": 1, "Cu": 2}
CPU = torch.device("cpu")
LISTS = [
    (primitive, both, self_interaction, skin)
    for primitive in (PrimitiveNeighborList, NewPrimitiveNeighborList)
    for both in (True, False)
    for self_interaction in (True, False)
    for skin in (0.0, 0.3)
]


def _edges(atoms, rcut, **options):
    builder = EdgeBuilder(rcut, 1e-3, CPU, **options)
    return builder.build(Structure.from_atoms(atoms, TYPES))


def _random_system(seed):
    rng = np.random.default_rng(seed)
    while True:
        n, rcut = int(rng.integers(1, 9)), rng.uniform(1, 5)
        cell = rng.normal(size=(3, 3)) * rng.uniform(1, 8)
        pbc = rng.random(3) < 0.6
        rows = np.linalg.norm(cell, axis=1)
        if abs(np.linalg.det(cell)) > 0.1 * rows.prod() and rows.min() > 0.5 * rcut:
            break
    spread = rng.choice([1, 4, 40, 2000])
    positions = rng.normal(size=(n, 3)) * spread
    return Atoms(rng.choice(list(TYPES), n), positions, cell=cell, pbc=pbc), rcut


def _assert_equal_pairs(edges, pairs):
    """Same destinations, sources and vectors; the order of equal pairs is by image."""
    assert edges.n_edges == len(pairs)
    found = np.column_stack([edges.dst, edges.src, edges.vec])
    wanted = np.array([[i, j, *vec] for i, j, _, vec in pairs]).reshape(-1, 5)
    found, wanted = (x[np.lexsort(np.round(x, 6).T[::-1])] for x in (found, wanted))
    np.testing.assert_allclose(found, wanted, atol=1e-9)


@pytest.mark.parametrize("backend", ["vesin", "ase"])
@pytest.mark.parametrize("seed", range(40))
def test_pairs_of_random_systems(seed, backend, pairs_of):
    atoms, rcut = _random_system(seed)
    _assert_equal_pairs(_edges(atoms, rcut, backend=backend), pairs_of(atoms, rcut))


@pytest.mark.parametrize(("primitive", "both", "self_interaction", "skin"), LISTS)
def test_pairs_of_ase_lists(
    primitive, both, self_interaction, skin, structures, pairs_of
):
    for atoms in structures.values():
        atoms.positions += 3 * atoms.cell.sum(axis=0)
        atoms.positions[0] -= 5 * (atoms.cell.array * atoms.pbc[:, None]).sum(axis=0)
        listing = NeighborList(
            [2.0] * len(atoms),
            skin=skin,
            self_interaction=self_interaction,
            bothways=both,
            primitive=primitive,
        )
        edges = _edges(atoms, 4.0, neighbor_list=listing)
        _assert_equal_pairs(edges, pairs_of(atoms, 4.0))


@pytest.mark.parametrize("primitive", [PrimitiveNeighborList, NewPrimitiveNeighborList])
def test_pairs_of_bare_primitive_lists(primitive, structures, pairs_of):
    for atoms in structures.values():
        listing = primitive([2.5] * len(atoms), skin=0.1)
        edges = _edges(atoms, 4.0, neighbor_list=listing)
        _assert_equal_pairs(edges, pairs_of(atoms, 4.0))


def test_edges_do_not_depend_on_the_search(atoms):
    listing = NeighborList([2.5] * len(atoms))
    first, *others = [
        _edges(atoms, 5.0, **options)
        for options in (
            {"backend": "vesin"},
            {"backend": "ase"},
            {"backend": "auto"},
            {"neighbor_list": listing},
        )
    ]
    for other in others:
        for name in ("src", "dst", "vec", "row_ptr", "by_source", "source_ptr"):
            assert torch.equal(getattr(first, name), getattr(other, name)), name


def test_edges_are_sorted_by_destination_source_and_image(structures):
    atoms = structures["tiny"] * (2, 1, 1)
    edges = _edges(atoms, 5.0)
    folded = Structure.from_atoms(atoms, TYPES).folded
    image = (edges.vec - folded[edges.src] + folded[edges.dst]).numpy()
    image = np.round(image @ np.linalg.inv(atoms.cell.array)).astype(int)
    rows = np.column_stack([edges.dst, edges.src, image])
    np.testing.assert_array_equal(rows, rows[np.lexsort(rows.T[::-1])])
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_order_survives_moving_an_atom_by_a_lattice_vector(structures):
    atoms = structures["triclinic"]
    before = _edges(atoms, 5.0)
    atoms.positions[1] += 7 * atoms.cell[0] - 3 * atoms.cell[2]
    after = _edges(atoms, 5.0)
    assert torch.equal(before.src, after.src)
    torch.testing.assert_close(before.vec, after.vec, rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", ["vesin", "ase"])
def test_the_cutoff_itself_counts(backend):
    pair = Atoms("O2", [[0, 0, 0], [0, 3.0, 4.0]])
    assert _edges(pair, 5.0, backend=backend).n_edges == 2
    pair.positions[1, 2] = np.nextafter(4.0, 5)
    assert _edges(pair, 5.0, backend=backend).n_edges == 0


@pytest.mark.parametrize("backend", ["vesin", "ase"])
@pytest.mark.parametrize(
    ("cell", "pbc"),
    [
        ([2000, 2000, 8], (True, True, True)),
        ([8, 8, 4e6], (True, True, True)),
        ([3e6, 8, 8], (True, False, False)),
        ([1e5, 1e5, 10], (False, False, False)),
    ],
)
def test_elongated_systems(cell, pbc, backend, pairs_of):
    # A grid of bins with this shape made vesin 0.6.2 divide by zero and end the process.
    rng = np.random.default_rng(0)
    positions = rng.random((6, 3)) * cell
    positions = np.concatenate([positions, positions + rng.normal(size=(6, 3))])
    atoms = Atoms("O12", positions, cell=cell, pbc=pbc)
    _assert_equal_pairs(_edges(atoms, 6.0, backend=backend), pairs_of(atoms, 6.0))


@pytest.mark.parametrize("axes", [(0,), (1, 2), (0, 1, 2)])
def test_an_atom_that_flew_away_costs_nothing(axes, structures):
    atoms = bulk("Cu", cubic=True) * (4, 4, 4)
    atoms.pbc = [axis not in axes for axis in range(3)]
    expected = _edges(atoms, 4.0)
    atoms += Atoms("Cu", positions=[[0, 0, 0]])
    atoms.positions[-1, list(axes)] = -1e9
    edges = _edges(atoms, 4.0)
    assert edges.n_atoms == expected.n_atoms + 1
    assert torch.equal(edges.src, expected.src)


@pytest.mark.parametrize("primitive", [PrimitiveNeighborList, NewPrimitiveNeighborList])
def test_skin_of_an_ase_list_loses_nothing_along_a_trajectory(
    primitive, structures, pair_model, reference
):
    atoms = structures["triclinic"]
    listing = NeighborList([2.5] * len(atoms), skin=0.4, primitive=primitive)
    atoms.calc = DP(pair_model, neighbor_list=listing)
    rng = np.random.default_rng(3)
    for step in range(12):
        atoms.positions += rng.normal(scale=0.05, size=(len(atoms), 3))
        if step == 8:
            atoms.set_cell(atoms.cell * 1.03, scale_atoms=True)
        np.testing.assert_allclose(atoms.get_forces(), reference(atoms)[1], atol=1e-11)
    assert 1 < listing.nupdates < 12


def test_an_ase_list_is_updated_and_keeps_its_options(structures, pair_model):
    atoms = structures["slab"]
    listing = NeighborList([3.0] * len(atoms), skin=0.2, self_interaction=True)
    before = {k: v for k, v in vars(listing.nl).items() if k != "nupdates"}
    DP(pair_model, neighbor_list=listing).calculate(atoms)
    assert listing.nupdates == 1
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(listing.nl, name), value)
    indices, offsets = listing.get_neighbors(0)
    assert len(indices) == len(offsets) > 0


def test_ase_lists_that_would_miss_pairs_are_refused(pair_model, structures):
    n = len(structures["slab"])
    for radii, skin in (([2.4] * n, 0.3), ([2.5] * (n - 1) + [2.4], 1.0)):
        with pytest.raises(ValueError, match=r"up to 4.8 Å only.*needs 5 Å"):
            DP(pair_model, neighbor_list=NeighborList(radii, skin=skin))
    for listing in (
        NewPrimitiveNeighborList(5.0),
        NewPrimitiveNeighborList([2.5] * n, use_scaled_positions=True),
    ):
        with pytest.raises(ValueError, match="one cutoff radius per atom"):
            DP(pair_model, neighbor_list=listing)


def test_ase_list_for_another_number_of_atoms(pair_model, structures):
    calc = DP(pair_model, neighbor_list=NeighborList([2.5] * 3))
    with pytest.raises(ValueError, match="made for 3 atoms, but this structure has 5"):
        calc.get_property("energy", structures["slab"])
    assert pair_model.calls == 0


@pytest.mark.parametrize("listing", ["ase", 5.0, [2.5, 2.5], object()])
def test_other_objects_are_no_neighbour_list(listing, pair_model):
    with pytest.raises(TypeError, match="NeighborList"):
        DP(pair_model, neighbor_list=listing)


@pytest.mark.parametrize("backend", ["matscipy", None, 3, ""])
def test_unknown_backend(backend, pair_model):
    with pytest.raises(ValueError, match="'auto', 'vesin', 'ase'"):
        DP(pair_model, nlist_backend=backend)


def test_backend_and_list_may_not_contradict(pair_model):
    listing = NeighborList([2.5] * 4)
    with pytest.raises(ValueError, match="either"):
        DP(pair_model, neighbor_list=listing, nlist_backend="vesin")
    DP(pair_model, neighbor_list=listing, nlist_backend="ase")


@pytest.mark.parametrize("backend", ["vesin", "ase"])
def test_the_named_backend_is_the_one_that_runs(backend, pair_model, monkeypatch):
    called = []
    for name, home in (("vesin", "vesin.NeighborList"), ("ase", None)):
        target = home or "dp_calc.pairs.primitive_neighbor_list"

        def spy(*args, name=name, **kwargs):
            called.append(name)
            raise KeyboardInterrupt

        monkeypatch.setattr(target, spy)
    with pytest.raises(KeyboardInterrupt):
        DP(pair_model, nlist_backend=backend).calculate(Atoms("O"))
    assert called == [backend]
