"""Every axis is periodic or open as stated, whatever the cell looks like."""

import itertools

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, fcc111, molecule

AXES = list(itertools.product([True, False], repeat=3))


def _results(calc, atoms):
    names = ("energy", "energies", "forces", "virial")
    return [calc.get_property(name, atoms) for name in names]


def _assert_same(results, others, atol=1e-11):
    for one, other in zip(results, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


@pytest.mark.parametrize("pbc", AXES)
def test_each_combination_of_axes(pbc, structures, calc, reference):
    atoms = structures["triclinic"]
    atoms.pbc = pbc
    energies, forces, virial = reference(atoms)
    _assert_same(_results(calc, atoms), [energies.sum(), energies, forces, virial])


def test_each_combination_of_axes_is_different(structures, calc):
    energies = set()
    for pbc in AXES:
        atoms = structures["triclinic"]
        atoms.pbc = pbc
        energies.add(round(calc.get_property("energy", atoms), 6))
    assert len(energies) == len(AXES)


@pytest.mark.parametrize("pbc", [pbc for pbc in AXES if not all(pbc)])
@pytest.mark.parametrize("row", ["zero", "other", "parallel", "huge"])
def test_cell_rows_of_open_axes_are_ignored(pbc, row, structures, calc):
    atoms = structures["triclinic"]
    atoms.pbc = pbc
    expected = _results(calc, atoms)
    rows = {
        "zero": np.zeros(3),
        "other": np.array([0.3, -0.2, 0.1]),
        "parallel": atoms.cell.array[np.argmax(pbc)] * 1.5,
        "huge": np.array([1e8, 0, 1e7]),
    }
    atoms.cell[~np.array(pbc)] = rows[row]
    _assert_same(_results(calc, atoms), expected)


def test_vacuum_of_a_slab_does_not_matter(calc):
    thin = fcc111("Cu", (2, 2, 2), a=3.5, vacuum=1.0)
    thick = fcc111("Cu", (2, 2, 2), a=3.5, vacuum=30.0)
    for atoms in (thin, thick):
        atoms.pbc = (True, True, False)
    _assert_same(_results(calc, thin), _results(calc, thick), 1e-10)


def test_stress_of_a_slab_is_per_volume_of_the_cell_as_given(structures, calc):
    atoms = structures["slab"]
    stress = calc.get_property("stress", atoms)
    atoms.cell[2] *= 3
    np.testing.assert_allclose(calc.get_property("stress", atoms), stress / 3)


def test_molecule_with_a_cell(calc):
    water = molecule("H2O")
    expected = _results(calc, water)
    for cell in (np.eye(3), [[1, 2, 0], [0, 1, 0], [9, 0, 0.1]]):
        water.set_cell(cell)
        water.pbc = False
        _assert_same(_results(calc, water), expected)


def test_unwrapped_positions(atoms, calc):
    expected = _results(calc, atoms)
    turns = np.random.default_rng(0).integers(-50, 51, (len(atoms), 3)) * atoms.pbc
    atoms.positions += turns @ atoms.cell.array
    _assert_same(_results(calc, atoms), expected)


def test_far_translation(atoms, calc):
    expected = _results(calc, atoms)
    atoms.positions += [1000.3, -777.1, 512.9]
    _assert_same(_results(calc, atoms), expected)


@pytest.mark.parametrize("repeat", [(2, 2, 2), (3, 1, 2)])
@pytest.mark.parametrize("name", ["tiny", "needle", "triclinic", "left-handed"])
def test_supercells_are_extensive(name, repeat, structures, calc):
    atoms = structures[name]
    copies = np.prod(repeat)
    energy, energies, forces, virial = _results(calc, atoms)
    expected = [energy * copies, np.tile(energies, copies), np.tile(forces, (copies, 1))]
    _assert_same(_results(calc, atoms * repeat), [*expected, virial * copies], 1e-10)


@pytest.mark.parametrize(
    "basis",
    [
        [[1, 0, 0], [3, 1, 0], [-2, 5, 1]],
        [[0, 1, 0], [1, 0, 0], [0, 0, 1]],
        [[-1, 0, 0], [0, -1, 0], [0, 0, -1]],
        [[1, 0, 0], [40, 1, 0], [0, 0, 1]],
    ],
    ids=["skewed", "left-handed", "inverted", "extremely skewed"],
)
def test_equivalent_lattices(basis, structures, calc):
    atoms = structures["triclinic"]
    expected = [*_results(calc, atoms), calc.get_property("stress", atoms)]
    atoms.set_cell(np.array(basis) @ atoms.cell.array)
    _assert_same([*_results(calc, atoms), calc.get_property("stress", atoms)], expected)


def test_dense_cell(calc, reference):
    atoms = bulk("Cu", a=3.5)
    atoms.set_cell(atoms.cell * 0.5, scale_atoms=True)
    energies, forces, virial = reference(atoms)
    expected = [energies.sum(), energies, forces, virial]
    _assert_same(_results(calc, atoms), expected, 1e-9)


def test_energy_is_smooth_across_the_cutoff(calc):
    energies = np.array(
        [
            calc.get_property("energy", Atoms("OCu", [[0, 0, 0], [0, 0, r]]))
            for r in np.arange(4.9, 5.1, 1e-3)
        ]
    )
    assert np.abs(np.diff(energies, 2)).max() < 1e-6
    assert energies[-1] == 2.5
