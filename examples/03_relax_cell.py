"""Relax the cell of cubic ice together with its atoms."""

import numpy as np
from ase.build import bulk
from ase.filters import FrechetCellFilter
from ase.optimize import BFGS
from ase.units import GPa, kg, m

from dp_calc import DP
from dp_calc.data import water_model


def ice(a):
    """Two molecules; each oxygen gives its hydrogens to two of its four neighbours."""
    atoms = bulk("O", "diamond", a=a)
    bonds = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / np.sqrt(3)
    first, second = atoms.positions
    for position in (first + bonds[:2], second - bonds[2:]):
        for hydrogen in position:
            atoms.append("H")
            atoms.positions[-1] = hydrogen
    return atoms


def show(name, atoms):
    density = atoms.get_masses().sum() / atoms.get_volume() / (kg / m**3)
    pressure = -atoms.get_stress()[:3].mean() / GPa
    force = np.linalg.norm(atoms.get_forces(), axis=1).max()
    energy = atoms.get_potential_energy() / 2
    print(
        f"{name:6}  {energy:10.4f} eV/molecule  {force:8.4f} eV/Å  "
        f"{pressure:8.4f} GPa  {density:7.1f} kg/m³"
    )


atoms = ice(a=6.0)
atoms.calc = DP(water_model())
show("before", atoms)

# At 0.1 GPa; the filter moves the cell vectors and the atoms at once.
optimizer = BFGS(FrechetCellFilter(atoms, scalar_pressure=0.1 * GPa), logfile=None)
for _ in optimizer.irun(fmax=0.005, steps=200):
    pass
show("after", atoms)
print(f"{optimizer.nsteps} steps; cell", atoms.cell.cellpar().round(3))
