"""Liquid water at 300 K; the first argument is the number of steps of 0.5 fs."""

import sys

import numpy as np
from ase.io import read
from ase.md.bussi import Bussi
from ase.units import fs

from dp_calc import DP
from dp_calc.data import water_model, water_structure

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200

atoms = read(water_structure())
atoms.calc = DP(water_model())
dynamics = Bussi(
    atoms,
    timestep=0.5 * fs,
    temperature_K=300,
    taut=100 * fs,
    rng=np.random.default_rng(0),
    trajectory="water_md.traj",
)
for step, _ in enumerate(dynamics.irun(steps)):
    if step % 10 == 0:
        print(
            f"{step * 0.5:6.1f} fs  {atoms.get_potential_energy():12.3f} eV  "
            f"{atoms.get_temperature():6.1f} K"
        )
print(f"{len(read('water_md.traj', ':'))} frames in water_md.traj")
