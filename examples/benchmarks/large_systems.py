"""How large a system fits: diamond in which a rattled cell of 64 atoms is repeated.

    python examples/benchmarks/large_systems.py -m DPA4-Neo.pt --atoms 1000000

A block of repeats has the energy per atom, the forces and the stress of its cell, which
is evaluated first with the same settings and, for comparison, in float64. Times and
memory are those of one whole evaluation through ASE, neighbour list and all, with code
that is compiled already.
"""

import argparse
import math
import time

import numpy as np
import torch
from ase.build import bulk

from dp_calc import DP
from dp_calc.bench.memory import memory_of

TOLERANCE = 1e-6  # eV/atom


def rattled_cell():
    """Diamond of 64 atoms, each off its place, in a cell a little skewed."""
    atoms = bulk("C", "diamond", a=3.567, cubic=True) * (2, 2, 2)
    atoms.rattle(0.05, seed=1)
    strain = np.random.default_rng(2).normal(scale=0.005, size=(3, 3))
    atoms.set_cell(atoms.cell @ (np.eye(3) + strain), scale_atoms=True)
    return atoms


def block_of(cell, n_atoms):
    """Repeats of a cell in an almost cubic block of at least so many atoms."""
    n_cells = math.ceil(n_atoms / len(cell))
    side = math.ceil(n_cells ** (1 / 3) - 1e-9)
    return cell * (math.ceil(n_cells / side**2), side, side)


def evaluate(atoms, calc):
    start = time.perf_counter()
    calc.calculate(atoms, ["energy", "forces", "stress"])
    return dict(calc.results), time.perf_counter() - start


def differences(results, expected):
    """Of the energy per atom, signed, of the forces and of the stress, the largest."""
    energies, forces = results["energies"], results["forces"]
    energy = energies.mean() - expected["energies"].mean()
    forces = forces.reshape(-1, *expected["forces"].shape) - expected["forces"]
    stress = results["stress"] - expected["stress"]
    return energy, np.abs(forces).max(), np.abs(stress).max()


def measure(cell, n_atoms, calc, expected):
    """One row of the table; whether the energy is that of the cell."""
    atoms = block_of(cell, n_atoms)
    memory = memory_of(calc.device)
    memory.restart()
    with memory.watching():
        results, seconds = evaluate(atoms, calc)
    energy, forces, stress = differences(results, expected)
    peaks = f"{memory.allocated():9.2f} {memory.reserved() or math.nan:9.2f}"
    print(
        f"{len(atoms):9} {calc._engine.backward.by:>9} {seconds:8.2f} "
        f"{calc.timings['neighbor list']:8.2f} {calc.timings['model']:8.2f} {peaks} "
        f"{energy:10.1e} {forces:9.1e} {stress:9.1e}",
        flush=True,
    )
    return abs(energy) <= TOLERANCE


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("-m", "--model", required=True, help="checkpoint of a model that knows carbon")
    add("--atoms", type=int, nargs="+", default=[100_000, 1_000_000], help="at least")
    add("--kernels", choices=("auto", "torch", "triton"), default="auto")
    add("--precision", choices=("exact", "fast"), default="exact")
    add("--repeats", type=int, default=1, help="evaluations of each size")
    add("--device")
    args = parser.parse_args()

    cell = rattled_cell()
    settings = {"kernels": args.kernels, "precision": args.precision}
    calc = DP(args.model, device=args.device, backward="stream", **settings)
    cuda = calc.device.type == "cuda"
    print(torch.cuda.get_device_name(calc.device) if cuda else "CPU")
    print(calc.settings.describe(calc.model))
    expected, seconds = evaluate(cell, calc)
    exact = DP(
        args.model, device=args.device, dtype="float64", kernels="torch", compile=False
    )
    energy, forces, stress = differences(expected, evaluate(cell, exact)[0])
    print(
        f"cell of {len(cell)} atoms: first evaluation {seconds:.1f} s; differences from "
        f"float64 {energy:.1e} eV/atom, {forces:.1e} eV/Å, {stress:.1e} eV/Å³"
    )
    del exact
    evaluate(block_of(cell, 1000), calc)  # large systems have compiled code of their own
    print(
        "                         seconds                  peak GB            differences"
    )
    print(
        "    atoms        by      all     list    model allocated  reserved "
        "  eV/atom      eV/Å     eV/Å³"
    )
    extensive = [
        measure(cell, n_atoms, calc, expected)
        for n_atoms in args.atoms
        for _ in range(args.repeats)
    ]
    print(f"extensive to {TOLERANCE:g} eV/atom: {'yes' if all(extensive) else 'NO'}")


if __name__ == "__main__":
    main()
