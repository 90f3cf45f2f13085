"""What the tests of molecular dynamics start from."""

import numpy as np
from ase.build import molecule

from dp_calc.cli.integrators import draw_velocities

ENSEMBLES = {
    "nve": (),
    "langevin": ("--temperature-k", 300),
    "npt": ("--temperature-k", 300, "--pressure-gpa", 0.1),
    "npt-cell": ("--temperature-k", 300, "--pressure-gpa", 0.1),
    "npt-berendsen": ("--temperature-k", 300, "--pressure-gpa", 0.1),
}


def water(pbc=True, moving=True):
    atoms = molecule("H2O")
    atoms.rattle(0.02, seed=2)
    atoms.cell = [[4.2, 0, 0], [0.3, 4.4, 0], [-0.5, 0.2, 4.6]]
    atoms.pbc = pbc
    if moving:
        draw_velocities(atoms, 300, np.random.default_rng(5))
    return atoms
