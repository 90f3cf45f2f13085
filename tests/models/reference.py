"""Reference results in ``tests/data`` and the means to compare a model with them.

A file ``NAME.ref.npz`` beside ``NAME.pt`` holds some structures and what the model gives
for them: computed in float64, and forces and energy in float32 as well. The edges are
built here by brute force, independently of the package's neighbour search.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from ase.data import chemical_symbols
from dp_calc.models import EdgeList
from torch import Tensor

DATA = Path(__file__).parents[1] / "data"
INPUTS = ("charge_spin", "spin", "fparam", "aparam")


@dataclass(frozen=True)
class Structure:
    """One structure of a reference file.

    ``conditions`` holds further inputs of the model, ``expected`` what it should give:
    energy, energies, forces and virial, energy32 and forces32, and for models with
    spins force_mag.
    """

    name: str
    symbols: tuple[str, ...]
    positions: np.ndarray
    cell: np.ndarray
    pbc: np.ndarray
    conditions: dict[str, Tensor]
    expected: dict[str, np.ndarray]


class Results(NamedTuple):
    """Energies (N,), forces (N, 3), virial (3, 3), and with spins magnetic forces."""

    energies: np.ndarray
    forces: np.ndarray
    virial: np.ndarray
    magnetic_forces: np.ndarray | None = None


def structures(name: str, folder: Path = DATA) -> list[Structure]:
    """Structures of ``NAME.ref.npz`` in a folder."""
    with np.load(folder / f"{name}.ref.npz") as stored:
        content = {key: stored[key] for key in stored.files}
    by_structure: dict[str, dict[str, np.ndarray]] = {}
    for key, value in content.items():
        structure, _, quantity = key.partition("/")
        by_structure.setdefault(structure, {})[quantity] = value
    return [_structure(k, v) for k, v in by_structure.items()]


def _structure(name: str, values: dict[str, np.ndarray]) -> Structure:
    geometry = [values.pop(k) for k in ("numbers", "positions", "cell", "pbc")]
    symbols = tuple(chemical_symbols[z] for z in geometry[0])
    conditions = {k: torch.tensor(values.pop(k)) for k in INPUTS if k in values}
    return Structure(name, symbols, *geometry[1:], conditions, values)


def edges(structure: Structure, rcut: float) -> EdgeList:
    """Every pair within ``rcut``, found by trying all images that could be near."""
    n = len(structure.positions)
    images = _images(structure, rcut)
    of_pair = structure.positions[None, :] - structure.positions[:, None]
    vec = of_pair[:, :, None] + (images @ structure.cell)  # (dst, src, image, 3)
    square = (vec**2).sum(-1)
    dst, src, image = np.nonzero((square <= rcut**2) & (square > 1e-10))
    return EdgeList.from_sorted(
        torch.tensor(src), torch.tensor(dst), torch.tensor(vec[dst, src, image]), n
    )


def _images(structure: Structure, rcut: float) -> np.ndarray:
    """Lattice shifts (K, 3) that may bring two atoms within ``rcut``, sorted."""
    if not structure.pbc.any():
        return np.zeros((1, 3))
    # Positions span some cells, and planes of the lattice are at these distances.
    inverse = np.linalg.inv(structure.cell)
    span = np.ptp(structure.positions @ inverse, axis=0)
    most = np.ceil(rcut * np.linalg.norm(inverse, axis=0) + span).astype(int)
    most = np.where(structure.pbc, most, 0)
    axes = [np.arange(-m, m + 1.0) for m in most]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)


def evaluate(
    model, structure: Structure, conditions: Mapping[str, Tensor] | None = None
) -> Results:
    """Evaluate ``model``; ``conditions`` replace those of the structure."""
    inputs = dict(structure.conditions if conditions is None else conditions)
    types = torch.tensor([model.type_map.index(s) for s in structure.symbols])
    graph = edges(structure, model.rcut)
    vec = graph.vec.requires_grad_(True)
    leaves = [vec]
    if "spin" in inputs:
        leaves.append(inputs["spin"].detach().clone().requires_grad_(True))
        inputs["spin"] = leaves[1]
    energies = model(types, graph, inputs)
    # An isolated atom's energy depends on no vector: its gradient is a zero.
    gradients = torch.autograd.grad(
        energies.sum(), leaves, allow_unused=True, materialize_grads=True
    )
    forces = graph.sum_at_dst(gradients[0]) - graph.sum_at_src(gradients[0])
    virial = -gradients[0].T @ vec
    magnetic = -gradients[1].numpy() if len(leaves) > 1 else None
    values = (x.detach().numpy() for x in (energies, forces, virial))
    return Results(*values, magnetic)
