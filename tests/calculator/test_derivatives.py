"""Forces, virial and stress are derivatives of the energy, by central differences."""

import numpy as np
import pytest

STEP = 1e-4
STRUCTURES = ["triclinic", "left-handed", "slab", "chain", "cluster"]
VOIGT = [(0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1)]


def _slope(energy_at):
    return (energy_at(STEP) - energy_at(-STEP)) / (2 * STEP)


def _strained(atoms, a, b, step):
    """Everything, open axes included, moved by a strain in row ``a``, column ``b``."""
    deformed = atoms.copy()
    gradient = np.eye(3)
    gradient[a, b] += step
    deformed.set_cell(atoms.cell.array @ gradient)
    deformed.positions = atoms.positions @ gradient
    return deformed


@pytest.mark.parametrize("name", STRUCTURES)
def test_forces(name, structures, calc):
    atoms = structures[name]
    forces = calc.get_property("forces", atoms)

    def energy_at(step, atom, axis):
        moved = atoms.copy()
        moved.positions[atom, axis] += step
        return calc.get_property("energy", moved)

    numerical = [
        [-_slope(lambda h: energy_at(h, atom, axis)) for axis in range(3)]  # noqa: B023
        for atom in range(len(atoms))
    ]
    np.testing.assert_allclose(forces, numerical, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", STRUCTURES)
def test_virial_and_stress(name, structures, calc):
    atoms = structures[name]

    def slope(a, b):
        return _slope(lambda h: calc.get_property("energy", _strained(atoms, a, b, h)))

    # Row of the virial: force; column: coordinate. Positions are rows, hence the order.
    numerical = np.array([[-slope(b, a) for b in range(3)] for a in range(3)])
    virial = calc.get_property("virial", atoms)
    np.testing.assert_allclose(virial, numerical, rtol=0, atol=1e-6)
    if atoms.pbc.any():
        stress = -(numerical + numerical.T) / 2 / abs(np.linalg.det(atoms.cell))
        expected = [stress[ij] for ij in VOIGT]
        np.testing.assert_allclose(
            calc.get_property("stress", atoms), expected, rtol=0, atol=1e-6
        )
