"""``dp-calc demo``: the bundled water potential, evaluated and run."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .console import print_fields, progress
from .info import model_fields

if TYPE_CHECKING:
    from ase import Atoms

    from ..trajectory_stats import Drift

__all__ = ["add_parser"]

_TIME_STEP = 0.5  # fs; the O-H stretch has a period of about 10 fs
_FEWEST_STEPS = 10


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="evaluate and run liquid water",
        description="Load the bundled water potential, evaluate 64 molecules, run them "
        "at constant energy, and write the trajectory and a picture of it.",
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("demo"), help="default: demo"
    )
    parser.add_argument(
        "--steps",
        type=_step_count,
        default=100,
        help=f"time steps of {_TIME_STEP} fs (default: 100)",
    )
    parser.set_defaults(run=_run)


def _step_count(text: str) -> int:
    if not text.isdigit() or int(text) < _FEWEST_STEPS:
        raise argparse.ArgumentTypeError(
            f"needs a whole number of at least {_FEWEST_STEPS}, not {text!r}"
        )
    return int(text)


def _run(args: argparse.Namespace) -> int:
    import ase.io

    from .. import DP
    from ..data import water_model, water_structure

    args.out.mkdir(parents=True, exist_ok=True)
    atoms = ase.io.read(water_structure())
    atoms.calc = DP(water_model())
    print("Model")
    print_fields(model_fields(atoms.calc))
    print(f"\n{atoms.get_chemical_formula()}, {len(atoms)} atoms, {_cell(atoms)}")
    print_fields(_result_fields(atoms))
    print(f"\nConstant energy, {args.steps} steps of {_TIME_STEP} fs", flush=True)
    trajectory = args.out / "water.traj"
    _simulate(atoms, args.steps, trajectory)
    frames = ase.io.read(trajectory, index=":")
    picture = args.out / "water.png"
    drift = _analyse(frames, picture)
    print_fields(_drift_fields(drift, len(atoms)))
    print(f"\nWritten: {trajectory}, {picture}")
    return 0


def _result_fields(atoms: "Atoms") -> list[tuple[str, str]]:
    import numpy as np
    from ase.units import GPa

    energy = atoms.get_potential_energy()
    size = np.linalg.norm(atoms.get_forces(), axis=1)
    virial = ["".join(f"{x:10.3f}" for x in row) for row in atoms.calc.results["virial"]]
    stress = "".join(f"{x:10.3f}" for x in atoms.get_stress() / GPa)
    rms = np.mean(size**2) ** 0.5
    return [
        ("energy", f"{energy:.4f} eV, {energy / len(atoms):.5f} eV/atom"),
        ("forces", f"largest |F| {size.max():.4f} eV/Å, rms |F| {rms:.4f} eV/Å"),
        ("virial (eV)", "\n".join(virial)),
        (
            "stress (GPa)",
            f"        xx        yy        zz        yz        xz        xy\n{stress}",
        ),
    ]


def _cell(atoms: "Atoms") -> str:
    return "cell " + " × ".join(f"{length:.2f}" for length in atoms.cell.lengths()) + " Å"


def _simulate(atoms: "Atoms", steps: int, trajectory: Path) -> None:
    from ase.io import Trajectory
    from ase.md.verlet import VelocityVerlet
    from ase.units import fs

    with Trajectory(trajectory, "w", atoms) as writer:
        dynamics = VelocityVerlet(atoms, timestep=_TIME_STEP * fs)
        dynamics.attach(writer.write)
        # The first item is the starting point, which is evaluated already.
        for _ in progress(dynamics.irun(steps), steps + 1, "step"):
            pass


def _analyse(frames: list["Atoms"], picture: Path) -> "Drift":
    import numpy as np

    from ..trajectory_stats import linear_drift, radial_distribution
    from .picture import draw_trajectory

    times = _TIME_STEP * np.arange(len(frames))
    energies = np.array([frame.get_total_energy() for frame in frames])
    temperatures = np.array([frame.get_temperature() for frame in frames])
    drift = linear_drift(times, energies)
    per_atom = (energies - energies.mean()) / len(frames[0])
    draw_trajectory(
        picture, times, per_atom, temperatures, radial_distribution(frames, "O")
    )
    return drift


def _drift_fields(drift: "Drift", n_atoms: int) -> list[tuple[str, str]]:
    micro = 1e6 / n_atoms
    slope, error = drift.slope * micro * 1e3, drift.standard_error * micro * 1e3
    blocks = "single samples" if drift.block == 1 else f"blocks of {drift.block} samples"
    return [
        ("total energy", f"fluctuates by {drift.fluctuation * micro:.2f} µeV/atom (rms)"),
        ("slope", f"{slope:.1f} ± {error:.1f} µeV/atom per ps"),
        ("", f"(standard error from averages over {blocks})"),
    ]
