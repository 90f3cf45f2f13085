"""Energy conservation: 333 water molecules at constant energy, in several precisions.

    python examples/benchmarks/nve_water.py --out nve

All arms start from one state, which is made once and kept in the folder: molecules on a
grid at the density of the bundled structure, relaxed a little and brought to 300 K. Each
arm writes its energies there, so that arms can run in calls of their own, as with
``--arms fast``; the table at the end is about all arms found in the folder.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from ase.build import molecule
from ase.io import read, write
from ase.md.langevin import Langevin
from ase.md.velocitydistribution import Stationary
from ase.md.verlet import VelocityVerlet
from ase.optimize import FIRE
from ase.units import fs, kB
from scipy.spatial.transform import Rotation
from tqdm import tqdm

from dp_calc import DP
from dp_calc.data import water_model, water_structure
from dp_calc.trajectory_stats import linear_drift

ARMS = {
    "exact": {"precision": "exact"},
    "fast": {"precision": "fast"},
    "float64": {"dtype": "float64"},
}
TIME_STEP = 0.5  # fs
TEMPERATURE = 300  # K


def pack_water(n_molecules, seed=0):
    """Molecules on a grid, each the best of 30 random orientations."""
    liquid = read(water_structure())
    volume = liquid.get_volume() / (len(liquid) / 3) * n_molecules
    length, per_side = volume ** (1 / 3), int(np.ceil(n_molecules ** (1 / 3) - 1e-9))
    rng = np.random.default_rng(seed)
    sites = rng.permutation(per_side**3)[:n_molecules]
    sites = np.stack(np.unravel_index(np.sort(sites), [per_side] * 3), 1)
    shape = molecule("H2O")
    shape.positions -= shape.get_center_of_mass()
    atoms = shape[:0]
    for site in sites * (length / per_side):
        turned = [
            site + r.apply(shape.positions) for r in Rotation.random(30, random_state=rng)
        ]
        room = [closest(x, atoms.positions, length) for x in turned]
        new = shape.copy()
        new.positions = turned[int(np.argmax(room))]
        atoms += new
    atoms.set_cell([length] * 3)
    atoms.pbc = True
    return atoms


def closest(points, others, length):
    """Shortest distance between two sets of points in a periodic cube."""
    apart = points[:, None] - others
    apart -= length * np.round(apart / length)
    return np.linalg.norm(apart, axis=2).min(initial=length)


def prepare(path, args):
    """The state that all arms start from."""
    if path.exists():
        return read(path)
    atoms = pack_water(args.molecules)
    atoms.calc = DP(args.model, device=args.device)
    FIRE(atoms, logfile=None).run(fmax=1.0, steps=args.relaxation)
    rng = np.random.default_rng(1)
    spread = np.sqrt(kB * TEMPERATURE * atoms.get_masses())[:, None]
    atoms.set_momenta(spread * rng.standard_normal((len(atoms), 3)))
    options = {"temperature_K": TEMPERATURE, "friction": 0.02 / fs, "fixcm": False}
    bath = Langevin(atoms, TIME_STEP * fs, rng=rng, **options)
    steps = args.equilibration
    for _ in tqdm(bath.irun(steps), "equilibration", steps + 1, mininterval=5):
        pass
    Stationary(atoms)
    print(f"equilibrated for {steps * TIME_STEP:g} fs: {atoms.get_temperature():.0f} K")
    write(path, atoms)  # ASE's own format keeps all digits
    return read(path)


def simulate(arm, atoms, args):
    """Potential and kinetic energy of each step, and how long the steps took."""
    atoms = atoms.copy()
    atoms.calc = DP(args.model, device=args.device, **ARMS[arm])
    print(f"{arm}: {atoms.calc.settings.describe(atoms.calc.model)}", flush=True)
    for _ in range(3):  # compiled and recorded before the clock starts
        atoms.calc.reset()
        atoms.get_forces()
    dynamics, energies = VelocityVerlet(atoms, TIME_STEP * fs), []
    start = time.perf_counter()
    for _ in tqdm(dynamics.irun(args.steps), arm, args.steps + 1, mininterval=5):
        energies.append((atoms.get_potential_energy(), atoms.get_kinetic_energy()))
        if time.perf_counter() - start > args.time_limit:
            print(f"{arm}: stopped at the time limit, after {len(energies) - 1} steps")
            break
    seconds = (time.perf_counter() - start) / max(1, len(energies) - 1)
    return np.array(energies), seconds


def save(path, energies, n_atoms, seconds):
    steps = np.arange(len(energies))
    header = f"# atoms {n_atoms}, ms per step {seconds * 1e3:.2f}\n"
    header += "step,time_fs,potential_ev,kinetic_ev"
    columns = np.column_stack([steps, steps * TIME_STEP, energies])
    formats = ["%d", "%.1f", "%.8f", "%.8f"]
    np.savetxt(path, columns, formats, ",", header=header, comments="")


def load(path):
    """Times in ps, potential and kinetic energies in µeV/atom, and ms per step."""
    n_atoms, ms = path.read_text().partition("\n")[0].removeprefix("# atoms ").split(",")
    columns = np.loadtxt(path, delimiter=",", skiprows=2).T
    micro = 1e6 / int(n_atoms)
    milliseconds = float(ms.removeprefix(" ms per step "))
    return columns[1] / 1e3, columns[2] * micro, columns[3] * micro, milliseconds


def report(folder):
    """The table of all arms, and whether their slopes differ from that in float64."""
    print("arm       steps  ms/step  T (K)   total energy, µeV/atom")
    print("                                  rms     slope/ps  ± error (samples/block)")
    slopes = {}
    for arm in ARMS:
        path = folder / f"{arm}.csv"
        if not path.exists():
            continue
        times, potential, kinetic, milliseconds = load(path)
        drift = linear_drift(times, potential + kinetic)
        temperature = kinetic.mean() * 1e-6 / 1.5 / kB
        slopes[arm] = drift
        print(
            f"{arm:9} {len(times) - 1:5} {milliseconds:8.2f} {temperature:6.1f} "
            f"{drift.fluctuation:8.2f} {drift.slope:12.2f}  ± {drift.standard_error:.2f} "
            f"({drift.block})"
        )
    for arm, drift in slopes.items():
        right = slopes.get("float64")
        if arm == "float64" or right is None:
            continue
        difference = drift.slope - right.slope
        error = np.hypot(drift.standard_error, right.standard_error)
        print(
            f"{arm} - float64: {difference:.2f} ± {error:.2f} µeV/atom/ps, "
            f"{abs(difference) / error:.1f} standard errors"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--arms", nargs="*", choices=ARMS, default=list(ARMS))
    add("--out", type=Path, required=True, help="folder of the state and the energies")
    add("--model", default=water_model())
    add("--device")
    add("--molecules", type=int, default=333)
    add("--relaxation", type=int, default=100, help="steps at most before 300 K")
    add("--equilibration", type=int, default=4000, help="steps at 300 K")
    add("--steps", type=int, default=5000, help="steps at constant energy")
    add("--time-limit", type=float, default=np.inf, help="seconds for each arm")
    args = parser.parse_args()

    args.out.mkdir(parents=True, exist_ok=True)
    atoms = prepare(args.out / "start.traj", args)
    print(
        f"{len(atoms)} atoms, cell {atoms.cell.lengths()[0]:.3f} Å, dp_calc on ", end=""
    )
    cuda = torch.cuda.is_available() and args.device != "cpu"
    print(torch.cuda.get_device_name() if cuda else "the CPU")
    for arm in args.arms:
        energies, seconds = simulate(arm, atoms, args)
        save(args.out / f"{arm}.csv", energies, len(atoms), seconds)
    report(args.out)


if __name__ == "__main__":
    main()
