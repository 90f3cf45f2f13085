"""A pair potential with closed-form derivatives, and structures of every periodicity."""

import itertools

import numpy as np
import pytest
import torch
from ase import Atoms
from torch import nn

from dp_calc import DP

RCUT = 5.0
LENGTH = 2.5
STEEPNESS = 1.2
SELF_ENERGY = np.array([-1.25, 0.5, 2.0])
DEPTH = np.array([[0.4, 0.7, 0.2], [0.7, 0.3, 0.5], [0.2, 0.5, 0.6]])
TYPE_MAP = ("H", "O", "Cu")


class PairModel(nn.Module):
    """Morse pairs that go smoothly to zero at the cutoff; same interface as any model."""

    type_map = TYPE_MAP
    inputs = ()
    rcut = RCUT
    shortest_distance = 1e-3
    dtype = torch.float64
    device = torch.device("cpu")

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, types, edges, conditions):
        self.calls += 1
        r = edges.vec.norm(dim=1)
        depth = torch.tensor(DEPTH)[types[edges.src], types[edges.dst]]
        morse = (1 - torch.exp(-STEEPNESS * (r - LENGTH))) ** 2 - 1
        pair = depth * morse * (1 - (r / RCUT) ** 2) ** 3
        return torch.tensor(SELF_ENERGY)[types] + edges.sum_at_dst(pair) / 2


def brute_force(atoms):
    """Energies, forces and virial of ``PairModel`` by loops over pairs and images."""
    types = [TYPE_MAP.index(symbol) for symbol in atoms.symbols]
    energies = SELF_ENERGY[types].copy()
    forces, virial = np.zeros((len(atoms), 3)), np.zeros((3, 3))
    for i, j, _, vec in all_pairs(atoms, RCUT):
        r = np.linalg.norm(vec)
        decay, switch = np.exp(-STEEPNESS * (r - LENGTH)), 1 - (r / RCUT) ** 2
        morse, slope = (1 - decay) ** 2 - 1, 2 * STEEPNESS * (1 - decay) * decay
        depth = DEPTH[types[i], types[j]]
        derivative = depth * (slope * switch**3 - morse * 6 * r / RCUT**2 * switch**2)
        energies[i] += depth * morse * switch**3 / 2
        # Each pair comes in both directions: its energy and virial are counted by halves.
        pull = derivative * vec / r
        forces[i] += pull
        virial -= np.outer(pull, vec) / 2
    return energies, forces, virial


def all_pairs(atoms, rcut):
    """Every directed pair (i, j, shift, vector) within a distance, found the slow way."""
    pbc, cell = atoms.pbc, np.where(atoms.pbc[:, None], atoms.cell.array, 0.0)
    inverse = np.linalg.pinv(cell)
    most = [
        int(np.ceil(rcut * np.linalg.norm(column))) + 1 if periodic else 0
        for column, periodic in zip(inverse.T, pbc, strict=True)
    ]
    cells = list(itertools.product(*[range(-n, n + 1) for n in most]))
    pairs = []
    for i, j in itertools.product(range(len(atoms)), repeat=2):
        apart = atoms.positions[j] - atoms.positions[i]
        nearest = -np.round(apart @ inverse).astype(int) * pbc
        for shift in nearest + np.array(cells):
            vec = apart + shift @ cell
            if (i != j or shift.any()) and vec @ vec <= rcut**2:
                pairs.append((i, j, tuple(shift), vec))
    return pairs


def _random_atoms(n, cell, pbc, seed):
    """Atoms at least 1.4 Å apart, scattered through the cell."""
    rng = np.random.default_rng(seed)
    cell = np.array(cell, dtype=float)
    box = np.where(cell.any(axis=1)[:, None], cell, 4 * np.eye(3))
    atoms = Atoms(cell=cell, pbc=pbc)
    while len(atoms) < n:
        trial = atoms + Atoms(rng.choice(TYPE_MAP), positions=[rng.random(3) @ box])
        trial.set_cell(cell)
        trial.pbc = pbc
        distances = [np.linalg.norm(vec) for *_, vec in all_pairs(trial, 1.4)]
        if not distances:
            atoms = trial
    return atoms


STRUCTURES = {
    "triclinic": _random_atoms(5, [[5, 0, 0], [1.7, 4.6, 0], [-1, 0.8, 5.2]], True, 1),
    "tiny": _random_atoms(1, [[2.2, 0, 0], [0.4, 2.4, 0], [0.3, 0.6, 2.3]], True, 2),
    "needle": _random_atoms(3, np.diag([2.5, 2.5, 30]), True, 3),
    "left-handed": _random_atoms(4, [[1, 4.6, 0], [5, 0, 0.3], [0, 1, 5]], True, 4),
    "slab": _random_atoms(
        5, [[4.5, 0, 0], [1.5, 4.8, 0], [1, 1, 6]], (True, True, False), 5
    ),
    "slab without a third vector": _random_atoms(
        5, [[4.5, 0, 0.3], [1.5, 4.8, 0], [0, 0, 0]], (True, True, False), 6
    ),
    "chain": _random_atoms(
        4, [[6, 0, 0], [0.6, 3.2, 1.1], [0, 1, 6]], (False, True, False), 7
    ),
    "cluster": _random_atoms(5, np.zeros((3, 3)), False, 8),
    "cluster in a cell": _random_atoms(5, np.diag([4, 4.5, 5]), False, 9),
}


@pytest.fixture
def pair_model():
    return PairModel()


@pytest.fixture
def calc(pair_model):
    return DP(pair_model)


@pytest.fixture(params=STRUCTURES)
def atoms(request):
    return STRUCTURES[request.param].copy()


@pytest.fixture
def structures():
    return {name: atoms.copy() for name, atoms in STRUCTURES.items()}


@pytest.fixture(scope="session")
def reference():
    return brute_force


@pytest.fixture(scope="session")
def pairs_of():
    return all_pairs
