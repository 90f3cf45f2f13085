"""A neighbour list with a skin gives the same edges, to the last bit, as a new one."""

import copy
import pickle

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from ase.neighborlist import NeighborList

from dp_calc import DP, Settings
from dp_calc.neighbors import EdgeBuilder
from dp_calc.structure import Structure

TYPES = {"H": 0, "O": 1, "Cu": 2}
CPU = torch.device("cpu")
FIELDS = ("src", "dst", "vec", "row_ptr", "by_source", "source_ptr")


class Builder(EdgeBuilder):
    """Counts its searches and compares what it builds with an unused builder."""

    def __init__(self, rcut=4.0, skin=1.0, device=CPU, **options):
        super().__init__(rcut, 1e-3, device, skin=skin, **options)
        self.searches = 0

    def _find(self, structure, points):
        self.searches += 1
        return super()._find(structure, points)

    def check(self, atoms):
        structure = Structure.from_atoms(atoms, TYPES)
        edges = self.build(structure)
        new = EdgeBuilder(self.rcut, 1e-3, self.device, skin=0.0).build(structure)
        for name in FIELDS:
            assert torch.equal(getattr(edges, name), getattr(new, name)), name
        return edges


def _shaken(atoms, size, rng):
    """Each atom moved by exactly this distance in some direction."""
    moved = atoms.copy()
    step = rng.normal(size=atoms.positions.shape)
    moved.positions += size * step / np.linalg.norm(step, axis=1)[:, None]
    return moved


@pytest.mark.parametrize("skin", [0.3, 1.0, 6.0])
@pytest.mark.parametrize("backend", ["vesin", "ase"])
def test_edges_along_a_random_walk(atoms, skin, backend):
    rng = np.random.default_rng(5)
    builder = Builder(skin=skin, backend=backend)
    for _ in range(25):
        atoms.positions += rng.normal(scale=0.03, size=atoms.positions.shape)
        builder.check(atoms)
    assert 1 <= builder.searches < (5 if skin >= 1 else 25)


def test_half_the_skin_is_the_limit(atoms):
    rng = np.random.default_rng(1)
    builder = Builder(skin=0.8)
    builder.check(atoms)
    builder.check(_shaken(atoms, 0.3999, rng))
    assert builder.searches == 1
    moved = atoms.copy()
    moved.positions[-1, 0] += 0.4001
    builder.check(moved)
    assert builder.searches == 2


def test_pairs_that_approach_each_other_by_the_whole_skin():
    pair = Atoms("O2", [[0, 0, 0], [4.999, 0, 0]])
    builder = Builder(rcut=4.0, skin=1.0)
    assert builder.check(pair).n_edges == 0
    pair.positions[:, 0] = [0.4999, 4.4991]
    assert builder.check(pair).n_edges == 2
    assert builder.searches == 1


@pytest.mark.parametrize("wrap", [False, True])
def test_atoms_that_leave_the_cell(structures, wrap):
    rng = np.random.default_rng(2)
    for atoms in structures.values():
        builder = Builder()
        builder.check(atoms)
        for _ in range(6):
            near = _shaken(atoms, 0.49, rng)
            near.positions += rng.integers(-5, 6, (len(atoms), 3)) @ (
                atoms.cell.array * atoms.pbc[:, None]
            )
            if wrap:
                near.wrap()
            builder.check(near)
        assert builder.searches == 1


def test_atoms_at_a_face_of_the_cell():
    cell = np.diag([5.0, 6.0, 7.0])
    corners = [[0, 0, 0], [5.0, 3, 0], [2.5, 6.0, 3.5], [2.5, 0, 7.0]]
    builder = Builder()
    for size in (0, -1e-17, 1e-17, -1e-9, 1e-9, -0.2, 0.2):
        builder.check(Atoms("O4", np.array(corners) + size, cell=cell, pbc=True))
    assert builder.searches == 1


@pytest.mark.parametrize("name", ["triclinic", "tiny", "slab", "chain", "left-handed"])
def test_small_strains_keep_the_list_and_large_ones_do_not(name, structures):
    atoms = structures[name]
    rng = np.random.default_rng(3)
    builder = Builder(skin=1.0)
    builder.check(atoms)
    for size, searches in ((1e-3, 1), (0.03, 1), (0.5, 2)):
        strain = np.eye(3) + size * np.diag(rng.choice([-1, 1], 3))
        strained = atoms.copy()
        strained.set_cell(atoms.cell.array @ strain, scale_atoms=False)
        strained.positions = atoms.positions @ strain
        builder.check(_shaken(strained, 0.1, rng))
        assert builder.searches == searches, size


def test_pairs_that_a_strain_brings_within_the_cutoff():
    # Atoms keep their place in a cell that shrinks, from within the reach to the cutoff.
    atoms = Atoms("O2", [[0, 0, 0], [4.9, 0, 0]], cell=[9.8, 20, 20], pbc=True)
    builder = Builder(rcut=4.0, skin=1.0)
    assert builder.check(atoms).n_edges == 0
    atoms.set_cell([7.98, 20, 20], scale_atoms=True)
    assert builder.check(atoms).n_edges == 4
    # From just outside of the reach it must be a new search that finds them.
    atoms.set_cell([10.01, 20, 20], scale_atoms=True)
    builder = Builder(rcut=4.0, skin=1.0)
    assert builder.check(atoms).n_edges == 0
    atoms.set_cell([7.98, 20, 20], scale_atoms=True)
    assert builder.check(atoms).n_edges == 4
    assert builder.searches == 2


def test_cells_that_change_at_every_step(structures):
    rng = np.random.default_rng(4)
    for name, atoms in structures.items():
        builder = Builder(skin=0.7)
        for _ in range(30):
            strain = np.eye(3) + rng.normal(scale=4e-3, size=(3, 3))
            atoms.set_cell(atoms.cell.array @ strain, scale_atoms=False)
            atoms.positions = atoms.positions @ strain
            atoms.positions += rng.normal(scale=0.02, size=atoms.positions.shape)
            builder.check(atoms)
        assert builder.searches < 25, name


def test_cells_that_jump_under_resting_atoms(structures):
    atoms = structures["triclinic"]
    builder = Builder()
    for factor in (1.0, 1.02, 1.2, 0.9, 3.0):
        changed = atoms.copy()
        changed.set_cell(atoms.cell.array * factor, scale_atoms=False)
        builder.check(changed)


def test_the_same_lattice_in_other_vectors(structures):
    atoms = structures["triclinic"]
    builder = Builder()
    builder.check(atoms)
    for matrix in ([[0, 1, 0], [0, 0, 1], [1, 0, 0]], [[1, 1, 0], [0, 1, 0], [0, 0, 1]]):
        other = atoms.copy()
        other.set_cell(np.array(matrix) @ atoms.cell.array)
        builder.check(other)


def test_changes_between_structures(structures):
    builder = Builder(skin=2.0)
    for _ in range(2):
        for atoms in structures.values():
            builder.check(atoms)
            builder.check(atoms[::-1])
            builder.check(atoms[1:] if len(atoms) > 1 else atoms * (2, 1, 1))
            builder.check(atoms + Atoms("O", [[40, 40, 40]]))
            swapped = atoms.copy()
            swapped.numbers = np.roll(atoms.numbers, 1)
            builder.check(swapped)


def test_periodicity_that_is_switched(structures):
    atoms = structures["triclinic"]
    builder = Builder()
    for pbc in ((1, 1, 1), (1, 1, 0), (0, 0, 0), (0, 1, 0), (1, 1, 1)):
        atoms.pbc = pbc
        builder.check(atoms)
    assert builder.searches == 5


def test_huge_jumps(structures):
    for name in ("triclinic", "slab", "cluster"):
        atoms, builder = structures[name], Builder()
        builder.check(atoms)
        for size in (1e3, 1e6, 1e9):
            jumped = atoms.copy()
            jumped.positions[0] += size
            builder.check(jumped)
            builder.check(atoms)


def test_a_structure_that_is_refused_leaves_the_list_right(structures):
    atoms = structures["slab"]
    builder = Builder()
    builder.check(atoms)
    bad = atoms.copy()
    bad.positions[1] = bad.positions[0] + 1e-5
    with pytest.raises(ValueError, match=r"atom 0 .* and atom 1 .* apart"):
        builder.check(bad)
    bad.positions[0, 1] = np.nan
    with pytest.raises(ValueError, match="position"):
        builder.check(bad)
    builder.check(atoms)
    builder.check(_shaken(atoms, 0.4, np.random.default_rng(0)))


def test_atoms_that_meet_between_searches():
    cell = np.diag([5.0, 6.0, 7.0])
    atoms = Atoms("OH", [[0.2, 1, 1], [4.8, 1, 1]], cell=cell, pbc=True)
    builder = Builder(skin=1.0)
    builder.check(atoms)
    atoms.positions[:, 0] = [0.0, 5.0]
    with pytest.raises(ValueError, match=r"a periodic image of atom 1 \(H\) are 0 Å"):
        builder.check(atoms)
    atoms.positions[:, 0] = 0.0
    with pytest.raises(ValueError, match=r"atom 0 \(O\) and atom 1 \(H\) are 0 Å"):
        builder.check(atoms)
    assert builder.searches == 1


def test_copies_start_without_a_list(structures):
    builder = EdgeBuilder(4.0, 1e-3, CPU, skin=1.0)
    structure = Structure.from_atoms(structures["slab"], TYPES)
    builder.build(structure)
    for other in (copy.deepcopy(builder), pickle.loads(pickle.dumps(builder))):
        assert other._list is None
        assert torch.equal(other.build(structure).vec, builder.build(structure).vec)
    assert builder._list is not None


def test_a_list_is_kept_only_with_a_skin(structures):
    structure = Structure.from_atoms(structures["slab"], TYPES)
    listing = NeighborList([3.0] * len(structure.numbers))
    for options in ({"skin": 0.0}, {"skin": 1.0, "neighbor_list": listing}):
        builder = EdgeBuilder(4.0, 1e-3, CPU, **options)
        builder.build(structure)
        assert builder._list is None


def test_what_is_kept_does_not_grow(structures):
    atoms, rng = structures["triclinic"] * (2, 2, 2), np.random.default_rng(0)
    first = Builder()
    first.check(atoms)
    dense = atoms.copy()
    dense.set_cell(atoms.cell * 0.6, scale_atoms=True)
    used = Builder()
    for _ in range(3):
        used.check(_shaken(dense, 0.1, rng))
        used.check(atoms)
    assert len(used._list.image) == len(first._list.image)
    assert used._list.images == first._list.images


def test_results_do_not_depend_on_what_was_evaluated_before(structures, pair_model):
    rng = np.random.default_rng(6)
    used = DP(pair_model, skin=1.5)
    for _ in range(3):
        for atoms in structures.values():
            moved = _shaken(atoms, 0.3, rng)
            used.calculate(atoms)
            used.calculate(moved)
            new = DP(pair_model, skin=0.0)
            new.calculate(moved)
            assert used.results.keys() == new.results.keys()
            for name, value in new.results.items():
                np.testing.assert_array_equal(used.results[name], value, err_msg=name)


def test_dynamics_search_rarely(pair_model, monkeypatch):
    searches = []
    find = EdgeBuilder._find
    monkeypatch.setattr(
        EdgeBuilder, "_find", lambda *args: searches.append(1) or find(*args)
    )
    atoms = bulk("Cu", cubic=True) * (2, 2, 2)
    atoms.calc = DP(pair_model)
    for _ in range(20):
        atoms.positions[:, 0] += 0.02  # also across faces of the cell
        atoms.get_forces()
    assert len(searches) == 1


@pytest.mark.parametrize("skin", [-0.1, np.inf, np.nan, "1", None, True])
def test_skins_that_are_none(skin):
    with pytest.raises(ValueError, match="skin must be a distance of 0 or more"):
        Settings(skin=skin)
