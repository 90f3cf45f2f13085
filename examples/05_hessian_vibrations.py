"""Vibrations of a water molecule: from finite differences, and from the Hessian."""

from tempfile import TemporaryDirectory

import numpy as np
from ase.build import molecule
from ase.optimize import BFGS
from ase.vibrations import Vibrations, VibrationsData

from dp_calc import DP
from dp_calc.data import water_model

atoms = molecule("H2O")
# Differences of forces cancel most of their digits: float64.
atoms.calc = DP(water_model(), dtype="float64")
BFGS(atoms, logfile=None).run(fmax=1e-5)

# ASE moves each atom and writes one file for each displacement.
with TemporaryDirectory() as folder:
    vibrations = Vibrations(atoms, name=f"{folder}/vib", delta=0.001, nfree=4)
    vibrations.run()
    numerical = vibrations.get_frequencies()

hessian = atoms.calc.get_hessian(atoms, progress=False)
analytic = VibrationsData.from_2d(atoms, hessian).get_frequencies()

# The first six are translations and rotations, which cost next to nothing.
print("mode   differences       Hessian   in 1/cm")
for mode, pair in enumerate(zip(numerical, analytic, strict=True)):
    print(f"{mode:4}", *(f"{abs(f):12.4f}{'i' if f.imag else ' '}" for f in pair))
difference = np.abs(numerical - analytic)[6:].max()
print(f"largest difference between the vibrations: {difference:.1e} 1/cm")
