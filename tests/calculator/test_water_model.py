"""The bundled water checkpoint through the calculator: references and derivatives."""

from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import molecule
from ase.stress import voigt_6_to_full_3x3_stress

from dp_calc import DP
from dp_calc.data import __file__ as data_file

WATER = Path(data_file).parent / "water_mini.pt"
REFERENCE = Path(__file__).parent.parent / "data" / "water_mini.ref.npz"
SYSTEMS = ["water64", "water64_open", "molecule"]


@pytest.fixture(scope="module")
def exact():
    return DP(WATER, dtype="float64", device="cpu")


@pytest.fixture(scope="module")
def single():
    return DP(WATER, device="cpu")


def _reference(system):
    with np.load(REFERENCE) as arrays:
        values = {
            k.split("/")[1]: arrays[k] for k in arrays if k.startswith(system + "/")
        }
    atoms = Atoms(values["numbers"], values["positions"])
    atoms.set_cell(values["cell"])
    atoms.pbc = values["pbc"]
    return atoms, values


@pytest.mark.parametrize("system", SYSTEMS)
def test_float64_results(system, exact):
    atoms, values = _reference(system)
    for name in ("energy", "energies", "forces", "virial"):
        result, expected = exact.get_property(name, atoms), values[name]
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("system", SYSTEMS)
def test_float32_results(system, single):
    atoms, values = _reference(system)
    energy = single.get_property("energy", atoms)
    assert abs(energy - values["energy"]) < 1e-5 * len(atoms)
    scale = max(1.0, np.abs(values["forces"]).max())
    forces = single.get_property("forces", atoms)
    np.testing.assert_allclose(forces, values["forces"], rtol=0, atol=2e-5 * scale)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("system", SYSTEMS)
def test_cuda_results(system):
    calc = DP(WATER, dtype="float64", device="cuda")
    atoms, values = _reference(system)
    for name in ("energy", "energies", "forces", "virial"):
        result, expected = calc.get_property(name, atoms), values[name]
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-9 * scale)
    assert calc.device.type == "cuda"


def _two_waters(periodicity):
    """Two molecules close enough for many images, and for none to lie apart."""
    atoms = molecule("H2O") + molecule("H2O")
    atoms.positions[3:] = atoms.positions[3:, [1, 2, 0]] + [0.4, 2.6, 1.1]
    atoms.rattle(0.05, seed=5)
    atoms.set_cell([[5.2, 0, 0.3], [1.9, 5.4, 0], [-0.8, 1.1, 5.0]])
    atoms.pbc = periodicity
    return atoms


PERIODICITIES = {
    "triclinic": (True, True, True),
    "slab": (True, True, False),
    "chain": (False, False, True),
    "cluster": (False, False, False),
}


def _slope(energy_at, step=3e-4):
    """Central difference of fourth order."""
    near = (energy_at(step) - energy_at(-step)) / (2 * step)
    far = (energy_at(2 * step) - energy_at(-2 * step)) / (4 * step)
    return (4 * near - far) / 3


@pytest.mark.parametrize("name", PERIODICITIES)
def test_forces_are_derivatives(name, exact):
    atoms = _two_waters(PERIODICITIES[name])
    forces = exact.get_property("forces", atoms)
    rng = np.random.default_rng(1)
    for _ in range(4):
        direction = rng.normal(size=(len(atoms), 3))

        def energy_at(step, direction=direction):
            moved = atoms.copy()
            moved.positions += step * direction
            return exact.get_property("energy", moved)

        assert -_slope(energy_at) == pytest.approx((forces * direction).sum(), abs=1e-6)


@pytest.mark.parametrize("name", PERIODICITIES)
def test_virial_and_stress_are_derivatives(name, exact):
    atoms = _two_waters(PERIODICITIES[name])
    virial = exact.get_property("virial", atoms)
    rng = np.random.default_rng(2)
    for _ in range(3):
        strain = rng.normal(size=(3, 3))
        strain += strain.T

        def energy_at(step, strain=strain):
            moved = atoms.copy()
            gradient = np.eye(3) + step * strain
            moved.set_cell(atoms.cell.array @ gradient)
            moved.positions = atoms.positions @ gradient
            return exact.get_property("energy", moved)

        slope = _slope(energy_at)
        assert -slope == pytest.approx((virial * strain).sum(), abs=1e-6)
        if atoms.pbc.any():
            stress = voigt_6_to_full_3x3_stress(exact.get_property("stress", atoms))
            work = (stress * strain).sum()
            assert work == pytest.approx(slope / atoms.get_volume(), abs=1e-6)


def test_open_and_periodic_axes_differ(exact):
    energies = [
        exact.get_property("energy", _two_waters(pbc)) for pbc in PERIODICITIES.values()
    ]
    assert np.abs(np.diff(energies)).min() > 1e-4


def test_backends_agree_to_the_bit(single):
    other = DP(WATER, nlist_backend="ase", device="cpu")
    for pbc in PERIODICITIES.values():
        atoms = _two_waters(pbc)
        for name in ("energies", "forces", "virial"):
            np.testing.assert_array_equal(
                single.get_property(name, atoms), other.get_property(name, atoms)
            )


def test_far_translation_costs_no_precision(single):
    atoms = _two_waters(True)
    forces = single.get_property("forces", atoms)
    atoms.positions += [1000.3, -777.1, 512.9]
    moved = single.get_property("forces", atoms)
    np.testing.assert_allclose(moved, forces, rtol=0, atol=1e-5)


def test_dimer_beyond_reach_is_two_atoms(exact):
    one, two = Atoms("O"), Atoms("O2", [[0, 0, 0], [0, 0, 50]])
    energy = exact.get_property("energy", one)
    assert exact.get_property("energy", two) == pytest.approx(2 * energy, rel=1e-14)
    np.testing.assert_array_equal(exact.get_property("forces", two), np.zeros((2, 3)))
