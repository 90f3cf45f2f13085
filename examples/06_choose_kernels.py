"""How a model is run: what can be chosen, what runs, and where the time goes."""

import time

import torch
from ase.build import molecule

from dp_calc import DP
from dp_calc.data import water_model

# Left alone, everything is chosen for the device at hand.
choices = {
    "as it comes": {},
    "plain PyTorch, all activations kept": {"kernels": "torch", "backward": "native"},
    "memory that grows with atoms only": {"backward": "stream", "cohort_edges": 4096},
    "double precision": {"dtype": "float64"},
    "neighbours searched every time": {"skin": 0.0},
}
if torch.cuda.is_available():
    choices["without compiled code"] = {"compile": False}

atoms = molecule("H2O", cell=[3.1] * 3, pbc=True) * (3, 3, 2)
moved = atoms.copy()
moved.rattle(0.01, seed=0)

energies = []
for name, choice in choices.items():
    calc = DP(water_model(), **choice)
    calc.warmup(atoms)  # on CUDA it compiles, or finds what was compiled before
    start = time.perf_counter()
    calc.calculate(moved)
    seconds = time.perf_counter() - start

    energies.append(calc.results["energy"])
    print(f"{name}: {1e3 * seconds:.0f} ms, {energies[-1]:.4f} eV")
    print(f"  {calc.settings.describe(calc.model)}")
    stages = (f"{stage} {1e3 * t:.1f}" for stage, t in calc.timings.items())
    print(f"  milliseconds: {', '.join(stages)}")

spread = (max(energies) - min(energies)) / len(atoms)
print(f"energies agree within {spread:.1e} eV per atom")

# What cannot be honoured is refused in a sentence; nothing else runs in its place.
try:
    DP(water_model(), device="cpu", kernels="triton")
except ValueError as error:
    print(f"refused: {error}")
