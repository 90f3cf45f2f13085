"""Many unlike structures at once; the first argument is the number of snapshots."""

import sys
import time

import numpy as np
from ase import Atoms
from ase.build import molecule
from ase.io import read

from dp_calc import DP, evaluate
from dp_calc.data import water_model, water_structure

n_snapshots = int(sys.argv[1]) if len(sys.argv) > 1 else 200
rng = np.random.default_rng(0)


def structures():
    """Water cells, molecules and single atoms; made only as they are needed."""
    for number in range(n_snapshots):
        atoms = molecule("H2O")
        atoms.positions += rng.normal(scale=0.05, size=(3, 3))
        if number % 2:
            atoms.set_cell(rng.uniform(4.0, 5.0, 3))
            atoms.pbc = True
        yield atoms
    yield read(water_structure())
    yield from (Atoms("O"), Atoms("H"))
    yield Atoms("He")  # the model has never heard of it


calc = DP(water_model())
start = time.perf_counter()
results = evaluate(structures(), calc)
seconds = time.perf_counter() - start

failed = [result["error"] for result in results if "error" in result]
energies = np.array([result["energy"] for result in results if "energy" in result])
print(f"{len(results)} structures in {seconds:.2f} s")
print(f"mean energy of the snapshots {energies[:n_snapshots].mean():.3f} eV")
print(f"cell with stress: {'stress' in results[1]}, molecule: {'stress' in results[0]}")
print(f"{len(failed)} failed: {failed[0]}")
