"""Structures per second: a loop of single evaluations against ``dp_calc.evaluate``.

Cells of eight atoms, each distorted in its own way, with the bundled water model or any
other. Both ways take turns in every round, so that what else the machine does hits both;
every structure of a round is new. Largest differences between the results come last.

    python examples/benchmarks/many_structures.py --device cuda
"""

import argparse
import time

import numpy as np
import torch
from ase import Atoms
from ase.build import bulk

from dp_calc import DP, evaluate
from dp_calc.data import water_model


def make_cells(elements, n, seed):
    """Distorted cells of diamond with the atoms per volume of water."""
    rng = np.random.default_rng(seed)
    perfect = bulk("C", "diamond", a=4.3, cubic=True)
    cells = []
    for _ in range(n):
        atoms = Atoms(rng.choice(elements, 8), cell=perfect.cell, pbc=True)
        atoms.positions = perfect.positions + rng.normal(scale=0.1, size=(8, 3))
        atoms.set_cell(atoms.cell @ (np.eye(3) + rng.normal(scale=0.02, size=(3, 3))))
        cells.append(atoms)
    return cells


def run_loop(calc, cells):
    results = []
    for atoms in cells:
        calc.calculate(atoms)
        results.append(calc.results)
    return results


def timed(function, *args, **keywords):
    start = time.perf_counter()
    results = function(*args, **keywords)  # on the host, so that no work is left
    return time.perf_counter() - start, results


def compare(one, other):
    """Largest differences of energies per atom and of forces."""
    energy = max(
        abs(a["energy"] - b["energy"]) / len(a["forces"])
        for a, b in zip(one, other, strict=True)
    )
    forces = max(
        np.abs(a["forces"] - b["forces"]).max() for a, b in zip(one, other, strict=True)
    )
    return energy, forces


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default=water_model())
    parser.add_argument("--device")
    parser.add_argument("--dtype")
    parser.add_argument("-n", type=int, default=1000, help="structures in a round")
    parser.add_argument("--in-loop", type=int, help="of which in the loop; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-edges", type=int)
    args = parser.parse_args()

    calc = DP(args.model, device=args.device, dtype=args.dtype)
    n_loop = args.n if args.in_loop is None else args.in_loop
    threads = f", {torch.get_num_threads()} threads" if calc.device.type == "cpu" else ""
    name = "" if threads else f", {torch.cuda.get_device_name(calc.device)}"
    print(f"{calc}{threads}{name}; {args.n} cells of 8 atoms")
    print(calc.settings.describe(calc.model))
    warm = make_cells(calc.type_map, 20, seed=0)
    run_loop(calc, warm)
    evaluate(warm, calc, max_edges=args.max_edges, progress=False)

    print("round   loop/s  batch/s   ratio   energy/atom  force   (largest differences)")
    ratios = []
    for number in range(1, args.rounds + 1):
        cells = make_cells(calc.type_map, args.n, seed=number)
        in_loop, one = timed(run_loop, calc, cells[:n_loop])
        together, many = timed(
            evaluate, cells, calc, max_edges=args.max_edges, progress=False
        )
        loop, batch = n_loop / in_loop, args.n / together
        energy, forces = compare(one, many[:n_loop])
        ratios.append(batch / loop)
        print(
            f"{number:5} {loop:8.1f} {batch:8.1f} {ratios[-1]:7.2f}   "
            f"{energy:8.1e} eV  {forces:.1e} eV/Å"
        )
    print(f"median ratio {np.median(ratios):.2f}")


if __name__ == "__main__":
    main()
