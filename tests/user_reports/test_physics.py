"""Section F: numerics and physics."""

import numpy as np
import pytest
from ase import Atoms, units
from ase.build import bulk, molecule
from ase.md.verlet import VelocityVerlet
from reports import COPPER, WATER, evaluate, float64, ice

import dp_calc
from dp_calc import DP


@pytest.mark.case("F1")
def test_total_energy_has_no_slope_in_dynamics():
    atoms, energies = ice(), []
    atoms.calc = DP(WATER)
    momenta = np.random.default_rng(1).normal(size=(6, 3))
    momenta *= np.sqrt(300 * units.kB * atoms.get_masses())[:, None]
    atoms.set_momenta(momenta - momenta.mean(axis=0))
    dynamics = VelocityVerlet(atoms, 0.25 * units.fs)
    dynamics.attach(lambda: energies.append(atoms.get_total_energy()))
    dynamics.run(200)
    slope = np.polyfit(np.arange(len(energies)), energies, 1)[0] / len(atoms)
    assert abs(slope) < 1e-7  # eV per atom and step


def _two_atoms():
    atoms = bulk("Cu", a=3.6) * (2, 1, 1)
    atoms.rattle(0.05, seed=0)
    return atoms


def _hessian_by_differences(atoms, calc, step):
    rows = []
    for atom in range(len(atoms)):
        for axis in range(3):
            forces = []
            for sign in (1, -1):
                moved = atoms.copy()
                moved.positions[atom, axis] += sign * step
                forces.append(calc.get_property("forces", moved).ravel())
            rows.append((forces[1] - forces[0]) / (2 * step))
    return np.array(rows)


@pytest.mark.case("F2")
@pytest.mark.parametrize("step", [1e-2, 1e-3])
def test_force_constants_from_float32_agree_with_float64(step):
    atoms, noise = _two_atoms(), 1e-5  # eV/Å
    single, double = DP(COPPER), float64(COPPER)
    difference = evaluate(atoms, single)[1] - evaluate(atoms, double)[1]
    assert np.abs(difference).max() < noise
    coarse, exact = (_hessian_by_differences(atoms, c, step) for c in (single, double))
    limit = noise / step
    assert np.abs(coarse - exact).max() < limit
    assert np.abs(coarse - coarse.T).max() < 2 * limit
    assert np.abs(coarse.reshape(6, 2, 3).sum(axis=1)).max() < 2 * limit
    assert np.abs(exact.reshape(6, 2, 3).sum(axis=1)).max() < 1e-8


@pytest.mark.case("F2")
def test_the_hessian_needs_no_differences():
    atoms, calc = _two_atoms(), float64(COPPER)
    hessian = calc.get_hessian(atoms, progress=False)
    by_differences = _hessian_by_differences(atoms, calc, 1e-3)
    np.testing.assert_allclose(hessian, by_differences, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(hessian, hessian.T)
    assert np.abs(hessian.reshape(6, 2, 3).sum(axis=1)).max() < 1e-10
    coarse = DP(COPPER).get_hessian(atoms, progress=False)
    np.testing.assert_allclose(coarse, hessian, rtol=0, atol=1e-3)


def _rattled_crystal():
    atoms = bulk("Cu", cubic=True) * (3, 3, 3)
    atoms.rattle(0.05, seed=0)
    return atoms


@pytest.mark.case("F3")
def test_the_same_structure_gives_the_same_bits():
    atoms, calc = _rattled_crystal(), DP(COPPER)
    results = []
    for n in range(20):
        if n % 10 == 4:
            evaluate(bulk("Cu"), calc)
        calc.reset()
        evaluate(atoms, calc)
        results.append(
            (atoms.get_potential_energy(), atoms.get_forces(), atoms.get_stress())
        )
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.case("F3")
def test_the_order_of_the_atoms_does_not_matter():
    atoms = _rattled_crystal()
    order = np.random.default_rng(0).permutation(len(atoms))
    for dtype, limit in (("float32", 1e-6), ("float64", 1e-12)):
        calc = DP(COPPER, dtype=dtype)
        energy, forces = evaluate(atoms, calc)
        permuted = atoms[order]
        other = evaluate(permuted, calc)
        assert other[0] / len(atoms) == pytest.approx(
            energy / len(atoms), abs=limit, rel=0
        )
        np.testing.assert_allclose(other[1], forces[order], rtol=0, atol=limit)


@pytest.mark.case("F3")
def test_other_structures_of_a_batch_change_only_the_rounding():
    others = [bulk("Cu"), molecule("C6H6"), Atoms("O"), _rattled_crystal()]
    atoms = _rattled_crystal()
    atoms.rattle(0.02, seed=5)
    for dtype, limit in (("float32", 1e-6), ("float64", 1e-12)):
        calc = DP(COPPER, dtype=dtype)
        energy, forces = evaluate(atoms, calc)
        batch = dp_calc.evaluate([*others, atoms, *others], calc, progress=False)
        result = batch[len(others)]
        assert result["energy"] / len(atoms) == pytest.approx(
            energy / len(atoms), abs=limit, rel=0
        )
        np.testing.assert_allclose(result["forces"], forces, rtol=0, atol=limit)
        again = dp_calc.evaluate([*others, atoms, *others], calc, progress=False)
        np.testing.assert_array_equal(again[len(others)]["forces"], result["forces"])


def _oxygens(distance):
    return Atoms("O2", [[0, 0, 0], [0.6 * distance, 0, 0.8 * distance]])


def _crowd(distance):
    """An atom that comes near a crowd of 60 within the cutoff."""
    crowd = bulk("Cu", cubic=True) * (3, 3, 2)
    crowd.pbc = False
    atoms = crowd + Atoms("Cu", [[4.0, 4.0, crowd.positions[:, 2].max() + distance]])
    return atoms


@pytest.mark.case("F6")
@pytest.mark.parametrize(
    ("model", "make", "start"), [(WATER, _oxygens, 5.985), (COPPER, _crowd, 5.985)]
)
def test_energy_is_smooth_across_the_cutoff(model, make, start):
    calc, step = float64(model), 1e-3
    distances = start + step * np.arange(30)
    energies, slopes = [], []
    for distance in distances:
        atoms = make(distance)
        energy, forces = evaluate(atoms, calc)
        energies.append(energy)
        direction = (make(distance + 1).positions - atoms.positions)[-1]
        slopes.append(-forces[-1] @ direction)
    curvature = np.diff(energies, 2) / step**2
    by_differences = np.gradient(energies, step)[1:-1]
    np.testing.assert_allclose(slopes[1:-1], by_differences, rtol=0, atol=1e-6)
    assert np.abs(np.diff(curvature)).max() < 1e-3 + np.ptp(curvature) / 5
    assert np.abs(curvature).max() < 0.1
    assert calc.rcut == 6.0
