"""``dp-calc md``: molecular dynamics that can be stopped and continued."""

import argparse
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import print_fields, progress
from .ensembles import ENSEMBLES, check_ensemble, defaults_of
from .simulation import (
    add_common_options,
    circumstances,
    constraint_text,
    fingerprint,
    load_calculator,
    model_identity,
    number,
    read_structure,
    say_differences,
    settle,
    stopped,
    tell,
    whole,
)

if TYPE_CHECKING:
    import numpy as np
    from ase import Atoms
    from ase.md.md import MolecularDynamics

    from .checkpoint import Checkpoint
    from .integrators import Observer

__all__ = ["add_parser"]

_SUFFIXES = (".traj", ".extxyz", ".xyz")
_CHOICES = ("ensemble", "timestep_fs", "temperature_k", "pressure_gpa", "friction_per_ps",
            "tau_t_fs", "tau_p_fs", "compressibility_per_gpa", "new_velocities", "seed",
            "every", "frame")  # fmt: skip


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
    add_common_options(parser)
    _add_files(parser)
    _add_physics(parser)
    parser.set_defaults(run=_run, command_name="md")


def _add_files(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("md.traj"),
        help="trajectory: .traj keeps every digit, .extxyz 8 decimals (default: md.traj)",
    )
    add(
        "--steps",
        metavar="N",
        type=whole("number of steps", 1),
        required=True,
        help="steps in all, those before --resume included",
    )
    add(
        "--every",
        metavar="N",
        type=whole("number of steps", 1),
        help="steps between frames and rows (default: 10)",
    )
    add("--save-every", metavar="N", type=whole("number of steps", 1), default=100,
        help="steps between checkpoints (default: 100)")  # fmt: skip


def _add_physics(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--ensemble", choices=tuple(ENSEMBLES), help="default: nve")
    add(
        "--timestep-fs",
        metavar="DT",
        type=number("time step", "fs", least=1e-3, most=20),
        help="in fs (default: 0.5)",
    )
    add(
        "--temperature-k",
        metavar="T",
        type=number("temperature", "K", least=0.0, most=1e5),
        help="of the thermostat, and of starting velocities, in K",
    )
    add(
        "--pressure-gpa",
        metavar="P",
        type=number("pressure", "GPa", -1e3, most=1e3),
        help="of the barostat, in GPa; 1 bar is 0.0001 GPa",
    )
    add(
        "--friction-per-ps",
        metavar="G",
        type=number("friction", "1/ps", above=0.0, most=1e4),
        help="of Langevin's thermostat, in 1/ps (default: 10)",
    )
    for name, what, default in (("t", "thermostat", 100), ("p", "barostat", 1000)):
        add(
            f"--tau-{name}-fs",
            metavar="TAU",
            type=number("time", "fs", 0.0, most=1e6),
            help=f"time constant of the {what}, in fs (default: {default})",
        )
    add(
        "--compressibility-per-gpa",
        metavar="K",
        type=number("compressibility", "1/GPa", above=0.0, most=1e3),
        help="for npt-berendsen, in 1/GPa (default: 0.46, that of water)",
    )
    add(
        "--new-velocities",
        action="store_true",
        default=None,
        help="draw velocities (Maxwell-Boltzmann, no drift) though the file has some",
    )
    add(
        "--seed",
        type=whole("seed", 0),
        help="of all random numbers (default: a new one, which is shown)",
    )
    add("--stop-above-k", metavar="T", default=1e4,
        type=number("temperature", "K", above=0.0, most=1e9),
        help="a hotter system has gone wrong; in K (default: 10000)")  # fmt: skip


@dataclass
class _Job:
    """A run that is set up, before its first step."""

    args: argparse.Namespace
    settings: dict[str, Any]
    paths: dict[str, Path]
    atoms: "Atoms"
    random: "np.random.Generator"
    observer: "Observer"
    stored: "Checkpoint | None"
    circumstances: dict[str, Any]


def _run(args: argparse.Namespace) -> int:
    from .report import report
    from .stepping import Stopped

    job = _prepare(args)
    _announce(job)
    try:
        _simulate(job)
    except Stopped as error:
        return stopped(error)
    report(job.paths["log"], job.paths["picture"], len(job.atoms))
    print(f"\nWritten: {', '.join(str(path) for path in job.paths.values())}")
    return 0


def _prepare(args: argparse.Namespace) -> _Job:
    """Check everything and evaluate where it starts; nothing is written."""
    from .state import restore_atoms

    paths, stored = _open(args)
    atoms = read_structure(args.structure, args.frame)
    settings = _settings(args, atoms, stored)
    random, observer = _start(settings, atoms)
    atoms.calc = load_calculator(args)
    settings = settle({**settings, **model_identity(atoms.calc)}, {}, stored)
    if stored:
        restore_atoms(atoms, stored.arrays)
        if stored.random:
            random.bit_generator.state = stored.random
    job = _Job(
        args, settings, paths, atoms, random, observer, stored, circumstances(atoms.calc)
    )
    observer.measure(0, 0.0)
    _refuse_runaway(job)
    return job


def _open(args: argparse.Namespace) -> tuple[dict[str, Path], "Checkpoint | None"]:
    if args.output.suffix not in _SUFFIXES:
        raise ValueError(
            f"the trajectory {args.output} must end in {', '.join(_SUFFIXES)}"
        )
    paths = {
        "frames": args.output,
        "log": args.output.with_suffix(".csv"),
        "picture": args.output.with_suffix(".png"),
        "checkpoint": args.output.with_suffix(".checkpoint"),
    }
    stored = tell(paths, (args.structure, args.model), args)
    if stored and stored.step > args.steps:
        raise ValueError(
            f"{paths['checkpoint']} has {stored.step} steps already; --steps counts them "
            f"too, so give more than {args.steps}"
        )
    return paths, stored


def _settings(
    args: argparse.Namespace, atoms: "Atoms", stored: "Checkpoint | None"
) -> dict[str, Any]:
    from .integrators import has_velocities

    given = {name: getattr(args, name) for name in _CHOICES}
    ensemble = given["ensemble"] or (stored.settings["ensemble"] if stored else "nve")
    defaults = {
        **defaults_of(ensemble),
        "ensemble": ensemble,
        "timestep_fs": 0.5,
        "new_velocities": False,
        "every": 10,
        # Short enough for JSON readers and for people who type it.
        "seed": secrets.randbelow(2**32),
    }
    given["structure"] = fingerprint(atoms)
    kept = has_velocities(atoms) and not given["new_velocities"]
    defaults["velocities"] = "file" if kept else "drawn"
    settings = settle(given, defaults, stored)
    check_ensemble(settings, atoms)
    return settings


def _start(
    settings: dict[str, Any], atoms: "Atoms"
) -> tuple["np.random.Generator", "Observer"]:
    import numpy as np

    from .integrators import Observer, draw_velocities

    random = np.random.default_rng(settings["seed"])
    if settings["velocities"] == "drawn":
        draw_velocities(atoms, settings["temperature_k"], random)
    return random, Observer(atoms, settings["ensemble"])


def _announce(job: _Job) -> None:
    settings, atoms = job.settings, job.atoms
    ensemble = settings["ensemble"]
    conditions = [ENSEMBLES[ensemble], f"{settings['timestep_fs']:g} fs per step"]
    if ensemble != "nve":
        conditions.append(f"{settings['temperature_k']:g} K")
    if ensemble.startswith("npt"):
        conditions.append(f"{settings['pressure_gpa']:g} GPa")
    pressure = "with the kinetic part" if atoms.pbc.all() else "none: an axis is open"
    formula = atoms.get_chemical_formula()
    start = f"from step {job.stored.step} on" if job.stored else "from the start"
    print_fields(
        [
            ("structure", f"{job.args.structure}: {formula}, {len(atoms)} atoms"),
            ("constraints", constraint_text(atoms)),
            ("ensemble", ", ".join(conditions)),
            ("velocities", _velocity_text(settings)),
            ("temperature", f"of {job.observer.degrees_of_freedom} degrees of freedom"),
            ("pressure", pressure),
            ("steps", f"{job.args.steps}, {start}"),
        ]
    )
    sys.stdout.flush()


def _velocity_text(settings: dict[str, Any]) -> str:
    if settings["velocities"] == "file":
        seed = f" (seed {settings['seed']})" if settings["ensemble"] == "langevin" else ""
        return f"from the file{seed}"
    return f"drawn for {settings['temperature_k']:g} K, seed {settings['seed']}"


def _simulate(job: _Job) -> None:
    from .growing import TableFile, cut_back, held, open_frames
    from .integrators import make_dynamics
    from .state import restore_dynamics

    dynamics = make_dynamics(job.atoms, job.settings, job.random)
    with held(job.paths["frames"]):
        if job.stored:
            say_differences(job.stored, job.circumstances)
            restore_dynamics(dynamics, job.stored.arrays)
            for role in ("frames", "log"):
                cut_back(job.paths[role], job.stored.marks.get(role))
        else:
            _clear(job, dynamics)
        frames = open_frames(job.paths["frames"])
        log = TableFile(job.paths["log"], job.observer.columns)
        try:
            _step(job, dynamics, frames, log)
        finally:
            log.close()
            frames.close()


def _clear(job: _Job, dynamics: "MolecularDynamics") -> None:
    from .growing import cut_back

    # The checkpoint goes first: it must never stand beside files of another run.
    for role in ("checkpoint", "log", "picture"):
        job.paths[role].unlink(missing_ok=True)
    cut_back(job.paths["frames"], None)
    _checkpoint(job, dynamics, {}).write(job.paths["checkpoint"])


def _step(job: _Job, dynamics: "MolecularDynamics", frames: Any, log: Any) -> None:
    from .stepping import advance

    def record() -> None:
        _refuse_runaway(job)
        step = dynamics.nsteps
        if step % job.settings["every"] == 0:
            log.write(job.observer.measure(step, step * job.settings["timestep_fs"]))
            frames.write(job.atoms)

    def save() -> None:
        marks = {"frames": frames.mark(), "log": log.mark()}
        _checkpoint(job, dynamics, marks).write(job.paths["checkpoint"])

    left = job.args.steps - dynamics.nsteps
    steps = progress(dynamics.irun(left), left + 1, "step")
    advance(steps, lambda: dynamics.nsteps, record, save, job.args.save_every)


def _checkpoint(
    job: _Job, dynamics: "MolecularDynamics", marks: dict[str, Any]
) -> "Checkpoint":
    from .checkpoint import Checkpoint
    from .state import atoms_state, dynamics_state

    return Checkpoint(
        "md", dynamics.nsteps, job.settings, job.circumstances,
        job.random.bit_generator.state, marks,
        {**atoms_state(job.atoms), **dynamics_state(dynamics)},
    )  # fmt: skip


def _refuse_runaway(job: _Job) -> None:
    temperature = job.observer.temperature()
    if not temperature <= job.args.stop_above_k:
        raise ValueError(
            f"the system has {temperature:.4g} K, more than --stop-above-k "
            f"{job.args.stop_above_k:g}; a shorter time step or a relaxed start may help"
        )
