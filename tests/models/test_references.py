"""Energies, forces and virials against stored float64 references.

Small checkpoints lie in ``tests/data``. The full-size ones are read from the folder
``../shared/data`` beside the repository where it exists.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import molecule
from dp_calc.models import load_model
from reference import DATA, evaluate, structures

from dp_calc import DP

BUNDLED = Path(__file__).parents[2] / "dp_calc" / "data"
SHARED = Path(__file__).parents[3] / "shared" / "data"
COMMITTED = [
    "exclude",
    "fitting",
    "heads",
    "nano_narrow",
    "neo_narrow",
    "plain",
    "version10",
    "water_mini",
    "zero_block",
]
FULL_SIZE = [
    "nano",
    "mini",
    "neo",
    "pyramid",
    "extra_l",
    "branches",
    "s2act",
    "cartesian",
    "attnres",
    "rank2_proj",
    "gridmlp",
    "zbl",
    "charge_spin",
    "native_spin",
]


def checkpoint(name):
    """Path of a checkpoint and of the folder with its references."""
    if name == "water_mini":
        return BUNDLED / "water_mini.pt", DATA
    folder = DATA if name in COMMITTED else SHARED / "dpa4"
    if not folder.exists():
        pytest.skip(f"put the folder with {name}.pt and its references at {folder}")
    return folder / f"{name}.pt", folder


def conditions_of(name, structure):
    if name == "charge_spin":  # raw rows of the two tables
        return {"charge_spin": torch.tensor([1.0, 2.0])}
    return structure.conditions


def relative(value, expected):
    expected = np.asarray(expected)
    return np.abs(value - expected).max() / max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("name", COMMITTED + FULL_SIZE)
def test_float64_agrees_to_rounding(name):
    path, folder = checkpoint(name)
    model = load_model(path, dtype=torch.float64)
    for structure in structures(name, folder):
        result = evaluate(model, structure, conditions_of(name, structure))
        expected = structure.expected
        assert relative(result.energies.sum(), expected["energy"]) < 1e-9
        assert relative(result.energies, expected["energies"]) < 1e-9
        assert relative(result.forces, expected["forces"]) < 1e-9
        assert relative(result.virial, expected["virial"]) < 1e-9
        if "force_mag" in expected:
            assert relative(result.magnetic_forces, expected["force_mag"]) < 1e-9


@pytest.mark.parametrize("name", COMMITTED + FULL_SIZE)
def test_float32_agrees_within_its_precision(name):
    path, folder = checkpoint(name)
    model = load_model(path)
    assert model.dtype == torch.float32
    for structure in structures(name, folder):
        result = evaluate(model, structure, conditions_of(name, structure))
        energy, forces = structure.expected["energy"], structure.expected["forces"]
        assert abs(result.energies.sum() - energy) < 1e-5 * len(structure.symbols)
        assert relative(result.forces, forces) < 2e-5


@pytest.mark.parametrize("name", ["heads", "zero_block", "water_mini"])
def test_the_calculator_gives_the_same(name):
    path, folder = checkpoint(name)
    calc = DP(path, dtype="float64", device="cpu")
    for structure in structures(name, folder):
        atoms = Atoms(
            structure.symbols, structure.positions, cell=structure.cell, pbc=structure.pbc
        )
        atoms.calc = calc
        expected = structure.expected
        assert relative(atoms.get_potential_energy(), expected["energy"]) < 1e-9
        assert relative(atoms.get_potential_energies(), expected["energies"]) < 1e-9
        assert relative(atoms.get_forces(), expected["forces"]) < 1e-9
        assert relative(calc.results["virial"], expected["virial"]) < 1e-9


@pytest.fixture
def smoke():
    """The example checkpoint of DeePMD-kit, which is not part of this repository."""
    path = SHARED / "dpa4" / "upstream_water_smoke.pt"
    if not path.exists():
        pytest.skip(f"put DeePMD-kit's example water checkpoint at {path}")
    return DP(path, device="cpu")


def energy(calc, atoms):
    atoms.calc = calc
    return atoms.get_potential_energy()


def water_in_a_box(side, pbc=True):
    water = molecule("H2O", cell=[side] * 3, pbc=pbc)
    water.center()
    return water


def test_example_water_checkpoint_gives_the_published_energies(smoke):
    oxygen = Atoms("O", cell=[20.0] * 3)
    apart = Atoms("OH", [[0, 0, 0], [0, 0, 6.5]])
    expected = [
        (molecule("H2O"), -467.868877619505),
        (water_in_a_box(5.0), -467.86853584647184),
        (Atoms("O"), -93.62489021718503),
        (oxygen, -93.62489021718503),
        (Atoms("O", cell=[3.0] * 3, pbc=True), -93.62433325648308),
        (apart, -280.74528278112416),
        (water_in_a_box(4.0), -467.8675417602063),
    ]
    for atoms, value in expected:
        assert energy(smoke, atoms) == pytest.approx(value, abs=1e-5)


def test_an_open_axis_is_not_periodic(smoke):
    slab = energy(smoke, water_in_a_box(4.0, pbc=[True, True, False]))
    bulk = energy(smoke, water_in_a_box(4.0))
    assert abs(slab - bulk) > 1e-5


def test_virial_of_an_atom_that_sees_only_its_images(smoke):
    atoms = Atoms("O", cell=[3.0] * 3, pbc=True)
    energy(smoke, atoms)
    np.testing.assert_allclose(smoke.results["virial"], 2.7751e-4 * np.eye(3), atol=2e-7)
