"""``dp-calc md``: molecular dynamics that can be stopped and continued."""

import argparse
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import print_fields
from .ensembles import ENSEMBLES, check_ensemble, defaults_of
from .md_options import PHYSICS, add_physics_options, add_step_options
from .simulation import (
    add_common_options,
    constraint_text,
    load_calculator,
    read_structure,
    stopped,
)

if TYPE_CHECKING:
    from ase import Atoms

    from .checkpoint import Checkpoint
    from .dynamics import Dynamics

__all__ = ["add_parser"]

_SUFFIXES = (".traj", ".extxyz", ".xyz")


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "md",
        help="run molecular dynamics",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run molecular dynamics. Beside the trajectory NAME.EXT stand\n"
        "NAME.csv, energy, temperature and pressure; NAME.png, a picture of them; and\n"
        "NAME.checkpoint, from which --resume goes on with the same digits as without\n"
        "interruption. Constraints of the file are kept.\n\nensembles:\n"
        + "".join(f"  {name:<14} {text}\n" for name, text in ENSEMBLES.items()),
    )
    trajectory = "trajectory: .traj keeps every digit, .extxyz 8 decimals"
    add_common_options(parser, "md.traj", trajectory)
    add_step_options(parser)
    add_physics_options(parser)
    parser.set_defaults(run=_run, command_name="md")


def _run(args: argparse.Namespace) -> int:
    from .report import report
    from .stepping import Stopped

    job = _prepare(args)
    _announce(job)
    try:
        job.run()
    except Stopped as error:
        return stopped(error)
    report(job.paths["log"], job.paths["picture"], len(job.atoms))
    print(f"\nWritten: {', '.join(str(path) for path in job.paths.values())}")
    return 0


def _prepare(args: argparse.Namespace) -> "Dynamics":
    """Check everything and evaluate where it starts; nothing is written."""
    import numpy as np

    from .dynamics import Dynamics
    from .integrators import Observer, draw_velocities
    from .resume import circumstances, model_identity, settle
    from .state import restore_atoms

    paths, stored = _open(args)
    atoms = read_structure(args.structure, args.frame)
    settings = _settings(args, atoms, stored)
    check_ensemble(settings, atoms)
    random = np.random.default_rng(settings["seed"])
    if settings["velocities"] == "drawn":
        draw_velocities(atoms, settings["temperature_k"], random)
    observer = Observer(atoms, settings["ensemble"])
    atoms.calc = load_calculator(args)
    settings = settle({**settings, **model_identity(atoms.calc)}, {}, stored)
    if stored:
        restore_atoms(atoms, stored.arrays)
        random.bit_generator.state = stored.random
    now = circumstances(atoms.calc)
    job = Dynamics(args, settings, now, paths, atoms, stored, random, observer)
    observer.measure(0, 0.0)
    job.refuse_runaway()
    return job


def _open(args: argparse.Namespace) -> tuple[dict[str, Path], "Checkpoint | None"]:
    from .resume import check_run_files

    if args.output.suffix not in _SUFFIXES:
        raise ValueError(
            f"the trajectory {args.output} needs one of the endings "
            f"{', '.join(_SUFFIXES)}"
        )
    paths = {
        "frames": args.output,
        "log": args.output.with_suffix(".csv"),
        "picture": args.output.with_suffix(".png"),
        "checkpoint": args.output.with_suffix(".checkpoint"),
    }
    stored = check_run_files(paths, (args.structure, args.model), args)
    if stored and stored.step > args.steps:
        raise ValueError(
            f"{paths['checkpoint']} has {stored.step} steps already, and --steps counts "
            f"them too; give more than {stored.step}"
        )
    return paths, stored


def _settings(
    args: argparse.Namespace, atoms: "Atoms", stored: "Checkpoint | None"
) -> dict[str, Any]:
    from .integrators import has_velocities
    from .resume import fingerprint, settle

    asked = {name: getattr(args, name) for name in PHYSICS}
    ensemble = asked["ensemble"] or (stored.settings["ensemble"] if stored else "nve")
    kept = has_velocities(atoms) and not asked["new_velocities"]
    defaults = {
        **defaults_of(ensemble),
        "ensemble": ensemble,
        "timestep_fs": 0.5,
        "new_velocities": False,
        "velocities": "file" if kept else "drawn",
        "every": 10,
        "seed": secrets.randbelow(2**32),
    }
    return settle({**asked, "structure": fingerprint(atoms)}, defaults, stored)


def _announce(job: "Dynamics") -> None:
    atoms = job.atoms
    pressure = "with the kinetic part" if atoms.pbc.all() else "none: an axis is open"
    formula = atoms.get_chemical_formula()
    start = f"from step {job.stored.step} on" if job.stored else "from the start"
    count = job.observer.degrees_of_freedom
    print_fields(
        [
            ("structure", f"{job.args.structure}: {formula}, {len(atoms)} atoms"),
            ("constraints", constraint_text(atoms)),
            ("ensemble", _ensemble_text(job.settings)),
            ("velocities", _velocity_text(job.settings)),
            ("temperature", f"that of {count} degrees of freedom"),
            ("pressure", pressure),
            ("steps", f"{job.args.steps}, {start}"),
        ]
    )
    sys.stdout.flush()


def _ensemble_text(settings: dict[str, Any]) -> str:
    ensemble = settings["ensemble"]
    conditions = [ENSEMBLES[ensemble], f"{settings['timestep_fs']:g} fs per step"]
    if ensemble != "nve":
        conditions.append(f"{settings['temperature_k']:g} K")
    if ensemble.startswith("npt"):
        conditions.append(f"{settings['pressure_gpa']:g} GPa")
    return ", ".join(conditions)


def _velocity_text(settings: dict[str, Any]) -> str:
    seed = f"seed {settings['seed']}"
    if settings["velocities"] == "drawn":
        return f"drawn for {settings['temperature_k']:g} K, {seed}"
    return "from the file" + (f", {seed}" if settings["ensemble"] == "langevin" else "")
