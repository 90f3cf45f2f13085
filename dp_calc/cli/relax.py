"""``dp-calc relax``: the nearest minimum of the energy, of atoms and cell."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cells import cell_choice, cell_filter, check_cell_choice, largest_stress
from .console import print_fields, print_table, progress
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
    from ase import Atoms
    from ase.optimize.optimize import Optimizer

    from .checkpoint import Checkpoint

__all__ = ["add_parser"]

_DEFAULTS = {"optimizer": "bfgs", "cell": "fixed", "pressure_gpa": 0.0}
_HEADER = ("", "energy/eV", "max |F|/(eV/Å)", "P/GPa", "volume/Å³")
_SAVE_EVERY = 10


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "relax",
        help="relax the atoms of a structure, and its cell",
        description="Relax a structure until no force exceeds --fmax; with --cell, until "
        "no stress that the cell can follow exceeds --smax-gpa either. Beside the output "
        "NAME.EXT stand NAME.steps.traj, every step with all digits, and "
        "NAME.checkpoint, from which --resume goes on. Constraints of the file are kept, "
        "its velocities are not. Exit status 1: not converged.",
    )
    add_common_options(parser)
    add = parser.add_argument
    add(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("relaxed.extxyz"),
        help="relaxed structure, in the format of the ending (default: relaxed.extxyz)",
    )
    add("--optimizer", choices=("bfgs", "fire"), help="default: bfgs")
    add(
        "--fmax",
        metavar="F",
        type=number("force", "eV/Å", above=0.0, most=1e3),
        default=0.05,
        help="largest force left, in eV/Å (default: 0.05)",
    )
    add(
        "--steps",
        metavar="N",
        type=whole("number of steps", 0),
        default=500,
        help="most steps, those before --resume included (default: 500)",
    )
    add(
        "--cell",
        type=cell_choice,
        help="relax the cell too: all, hydrostatic (volume "
        "only), or components with commas between, such as xx,yy,xy (default: fixed)",
    )
    add(
        "--pressure-gpa",
        metavar="P",
        type=number("pressure", "GPa", -1e3, most=1e3),
        help="pressure on the cell in GPa; 1 bar is 0.0001 GPa (default: 0)",
    )
    add(
        "--smax-gpa",
        metavar="S",
        type=number("stress", "GPa", above=0.0, most=1e3),
        help="largest stress left with --cell, in GPa (default: 0.1)",
    )
    parser.set_defaults(run=_run, command_name="relax")  # fmt: skip


@dataclass
class _Job:
    """A relaxation that is set up."""

    args: argparse.Namespace
    settings: dict[str, Any]
    paths: dict[str, Path]
    atoms: "Atoms"
    stored: "Checkpoint | None"
    circumstances: dict[str, Any]

    @property
    def pressure(self) -> float:
        """In eV/Å³."""
        from ase.units import GPa

        return self.settings["pressure_gpa"] * GPa

    def converged(self) -> bool:
        """Whether atoms, and cell if it is free, are as near the minimum as asked."""
        from ase.units import GPa

        if _largest_force(self.atoms) > self.args.fmax:
            return False
        cell = self.settings["cell"]
        limit = _stress_limit(self.args) * GPa
        return cell == "fixed" or largest_stress(self.atoms, cell, self.pressure) <= limit


def _run(args: argparse.Namespace) -> int:
    from .stepping import Stopped

    job = _prepare(args)
    before = _row("before", job.atoms)
    _announce(job)
    try:
        _relax(job)
    except Stopped as error:
        return stopped(error)
    _write_result(job)
    print_table(_HEADER, [before, _row("after", job.atoms)])
    print(f"\nWritten: {', '.join(str(path) for path in job.paths.values())}")
    if job.converged():
        return 0
    print(
        f"dp-calc: not converged within {args.steps} steps; the same command with "
        "--resume and more --steps goes on",
        file=sys.stderr,
    )
    return 1


def _prepare(args: argparse.Namespace) -> _Job:
    """Check everything and evaluate the structure as given; nothing is written."""
    stem = args.output.with_suffix("")
    paths = {
        "output": args.output,
        "frames": stem.with_name(f"{stem.name}.steps.traj"),
        "checkpoint": stem.with_name(f"{stem.name}.checkpoint"),
    }
    _check_format(args.output)
    stored = tell(paths, (args.structure, args.model), args)
    atoms = read_structure(args.structure, args.frame)
    # The velocities of where it came from mean nothing in a minimum.
    atoms.arrays.pop("momenta", None)
    names = (*_DEFAULTS, "frame")
    given = {name: getattr(args, name) for name in names}
    given["structure"] = fingerprint(atoms)
    settings = settle(given, _DEFAULTS, stored)
    _check_cell(args, settings, atoms)
    atoms.calc = load_calculator(args)
    settings = settle({**settings, **model_identity(atoms.calc)}, {}, stored)
    atoms.get_potential_energy()
    return _Job(args, settings, paths, atoms, stored, circumstances(atoms.calc))


def _check_format(path: Path) -> None:
    from ase.io.formats import UnknownFileTypeError, filetype, ioformats

    try:
        writable = ioformats[filetype(str(path), read=False)].can_write
    except (UnknownFileTypeError, KeyError):
        writable = False
    if not writable:
        raise ValueError(
            f"ASE writes no format with the name {path.name}; take one like "
            "relaxed.extxyz, relaxed.cif or POSCAR"
        )


def _check_cell(
    args: argparse.Namespace, settings: dict[str, Any], atoms: "Atoms"
) -> None:
    if settings["cell"] != "fixed":
        return check_cell_choice(atoms, settings["cell"], settings["pressure_gpa"])
    for name in ("pressure_gpa", "smax_gpa"):
        if getattr(args, name) is not None:
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} says how the cell relaxes; give --cell with it")


def _announce(job: _Job) -> None:
    settings, args = job.settings, job.args
    aim = f"forces up to {args.fmax:g} eV/Å"
    cell = settings["cell"]
    if cell != "fixed":
        aim += f", stress within {_stress_limit(args):g} GPa"
        cell += f", at {settings['pressure_gpa']:g} GPa"
    formula, n = job.atoms.get_chemical_formula(), len(job.atoms)
    start = f", from step {job.stored.step} on" if job.stored else ""
    print_fields(
        [
            ("structure", f"{args.structure}: {formula}, {n} atoms"),
            ("constraints", constraint_text(job.atoms)),
            ("cell", cell),
            ("until", f"{aim} ({settings['optimizer'].upper()}{start})"),
        ]
    )
    sys.stdout.flush()


def _relax(job: _Job) -> None:
    from .growing import held
    from .state import restore_atoms, restore_optimizer, watch

    path = job.paths["frames"]
    with held(path):
        if job.stored:
            say_differences(job.stored, job.circumstances)
            restore_atoms(job.atoms, job.stored.arrays)
        optimizer = _optimizer(job)
        seen = watch(optimizer)
        if job.stored and job.stored.step:
            restore_optimizer(optimizer, job.stored.arrays, job.stored.step)
            job.atoms.arrays.pop("momenta", None)
        _cut(job)
        _step(job, optimizer, seen)


def _cut(job: _Job) -> None:
    from .growing import cut_back

    if job.stored:
        return cut_back(job.paths["frames"], job.stored.marks.get("frames"))
    # The checkpoint goes first: it must never stand beside files of another run.
    for role in ("checkpoint", "output"):
        job.paths[role].unlink(missing_ok=True)
    cut_back(job.paths["frames"], None)
    _checkpoint(job, 0, {}, {}).write(job.paths["checkpoint"])


def _optimizer(job: _Job) -> "Optimizer":
    from ase.optimize import BFGS, FIRE

    target, cell = job.atoms, job.settings["cell"]
    if cell != "fixed":
        target = cell_filter(job.atoms, cell, job.pressure)
    return {"bfgs": BFGS, "fire": FIRE}[job.settings["optimizer"]](target, logfile=None)


def _step(job: _Job, optimizer: "Optimizer", seen: dict[str, Any]) -> None:
    from .growing import open_frames
    from .state import optimizer_state
    from .stepping import advance

    frames = open_frames(job.paths["frames"])
    count: Callable[[], int] = lambda: optimizer.nsteps  # noqa: E731

    def save() -> None:
        marks = {"frames": frames.mark()}
        arrays = optimizer_state(optimizer, seen)
        _checkpoint(job, count(), marks, arrays).write(job.paths["checkpoint"])

    left = max(job.args.steps - count(), 0)
    # ASE's own criterion never holds: it mixes eV/Å with a stress in no plain unit.
    steps = progress(optimizer.irun(fmax=0.0, steps=left), left + 1, "step")
    try:
        advance(
            steps,
            count,
            lambda: frames.write(job.atoms),
            save,
            _SAVE_EVERY,
            job.converged,
        )
    finally:
        frames.close()


def _checkpoint(
    job: _Job, step: int, marks: dict[str, Any], arrays: dict[str, Any]
) -> "Checkpoint":
    from .checkpoint import Checkpoint
    from .state import atoms_state

    return Checkpoint(
        "relax", step, job.settings, job.circumstances, None, marks,
        {**atoms_state(job.atoms), **arrays},
    )  # fmt: skip


def _write_result(job: _Job) -> None:
    import ase.io
    from ase.calculators.calculator import all_properties
    from ase.calculators.singlepoint import SinglePointCalculator
    from ase.io.formats import filetype

    from .checkpoint import safely_replacing

    result = job.atoms.copy()
    known = {k: v for k, v in job.atoms.calc.results.items() if k in all_properties}
    result.calc = SinglePointCalculator(result, **known)
    kind = filetype(str(job.args.output), read=False)
    with safely_replacing(job.paths["output"]) as temporary:
        ase.io.write(temporary, result, format=kind)


def _stress_limit(args: argparse.Namespace) -> float:
    return 0.1 if args.smax_gpa is None else args.smax_gpa


def _largest_force(atoms: "Atoms") -> float:
    return float((atoms.get_forces() ** 2).sum(1).max() ** 0.5)


def _row(name: str, atoms: "Atoms") -> tuple[str, ...]:
    from ase.units import GPa

    pressure = volume = "-"
    # Along an open axis there is nothing that a pressure could act on.
    if atoms.pbc.all():
        pressure = f"{-atoms.get_stress()[:3].mean() / GPa:.4f}"
        volume = f"{atoms.get_volume():.4f}"
    energy, force = atoms.get_potential_energy(), _largest_force(atoms)
    return (name, f"{energy:.6f}", f"{force:.6f}", pressure, volume)
