"""``dp-calc relax``: the nearest minimum of the energy, of atoms and cell."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cells import cell_choice, check_cell_choice
from .console import print_fields, print_table
from .simulation import (
    add_common_options,
    add_number,
    constraint_text,
    load_calculator,
    read_structure,
    stopped,
    whole,
)

if TYPE_CHECKING:
    from ase import Atoms

    from .relaxation import Relaxation

__all__ = ["add_parser"]

_DEFAULTS = {"optimizer": "bfgs", "cell": "fixed", "pressure_gpa": 0.0}
_HEADER = ("", "energy/eV", "max |F|/(eV/Å)", "P/GPa", "volume/Å³")
_STRESS_LEFT = 0.1  # GPa


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
    relaxed = "relaxed structure, in the format of the ending"
    add_common_options(parser, "relaxed.extxyz", relaxed)
    _add_aims(parser)
    _add_ways(parser)
    parser.set_defaults(run=_run, command_name="relax")


def _add_aims(parser: argparse.ArgumentParser) -> None:
    force = "largest force left, in eV/Å (default: 0.05)"
    add_number(parser, "fmax", force, 0.05, above=0.0, most=1e3)
    stress = f"largest stress left with --cell, in GPa (default: {_STRESS_LEFT})"
    add_number(parser, "smax-gpa", stress, above=0.0, most=1e3)
    parser.add_argument(
        "--steps",
        metavar="N",
        type=whole("number of steps", 0),
        default=500,
        help="most steps, those before --resume included (default: 500)",
    )


def _add_ways(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--optimizer", choices=("bfgs", "fire"), help="default: bfgs")
    add(
        "--cell",
        metavar="WHAT",
        type=cell_choice,
        help="relax the cell too: all, hydrostatic (volume only), or components with "
        "commas between, such as xx,yy,xy (default: the cell stays)",
    )
    pressure = "pressure on the cell in GPa; 1 bar is 0.0001 GPa (default: 0)"
    add_number(parser, "pressure-gpa", pressure, least=-1e3, most=1e3)


def _run(args: argparse.Namespace) -> int:
    from .stepping import Stopped

    job = _prepare(args)
    before = _row("before", job.atoms)
    _announce(job)
    try:
        job.run()
    except Stopped as error:
        return stopped(error)
    job.write_output()
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


def _prepare(args: argparse.Namespace) -> "Relaxation":
    """Check everything and evaluate the structure as given; nothing is written."""
    from .relaxation import Relaxation
    from .resume import check_run_files, circumstances, model_identity, settle

    _check_format(args.output)
    paths = _paths(args.output)
    stored = check_run_files(paths, (args.structure, args.model), args)
    atoms = read_structure(args.structure, args.frame)
    # The velocities of where it came from mean nothing in a minimum.
    atoms.arrays.pop("momenta", None)
    settings = settle(_asked(args, atoms), _DEFAULTS, stored)
    _check_cell(args, settings, atoms)
    atoms.calc = load_calculator(args)
    settings = settle({**settings, **model_identity(atoms.calc)}, {}, stored)
    atoms.get_potential_energy()
    if args.smax_gpa is None:
        args.smax_gpa = _STRESS_LEFT
    job = Relaxation(args, settings, circumstances(atoms.calc), paths, atoms, stored)
    job.check_output()
    return job


def _paths(output: Path) -> dict[str, Path]:
    stem = output.with_suffix("")
    return {
        "output": output,
        "frames": stem.with_name(f"{stem.name}.steps.traj"),
        "checkpoint": stem.with_name(f"{stem.name}.checkpoint"),
    }


def _asked(args: argparse.Namespace, atoms: "Atoms") -> dict[str, Any]:
    from .resume import fingerprint

    names = ("optimizer", "cell", "pressure_gpa")
    return {
        **{name: getattr(args, name) for name in names},
        "structure": fingerprint(atoms),
    }


def _check_format(path: Path) -> None:
    from ase.io.formats import UnknownFileTypeError, filetype, ioformats

    if not path.name:
        raise ValueError("the output needs a name; give one with -o")
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
        check_cell_choice(atoms, settings["cell"], settings["pressure_gpa"])
        return
    for name in ("pressure_gpa", "smax_gpa"):
        if getattr(args, name) is not None:
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} says how the cell relaxes; give --cell with it")


def _announce(job: "Relaxation") -> None:
    args, settings, atoms = job.args, job.settings, job.atoms
    aim, cell = f"forces up to {args.fmax:g} eV/Å", settings["cell"]
    if cell != "fixed":
        aim += f", stress within {args.smax_gpa:g} GPa"
        cell += f", at {settings['pressure_gpa']:g} GPa"
    start = f", from step {job.stored.step} on" if job.stored else ""
    formula = atoms.get_chemical_formula()
    print_fields(
        [
            ("structure", f"{args.structure}: {formula}, {len(atoms)} atoms"),
            ("constraints", constraint_text(atoms)),
            ("cell", cell),
            ("until", f"{aim} ({settings['optimizer'].upper()}{start})"),
        ]
    )
    sys.stdout.flush()


def _row(name: str, atoms: "Atoms") -> tuple[str, ...]:
    from ase.units import GPa

    from .relaxation import largest_force

    pressure = volume = "-"
    # Along an open axis there is nothing that a pressure could act on.
    if atoms.pbc.all():
        pressure = f"{-atoms.get_stress()[:3].mean() / GPa:.4f}"
        volume = f"{atoms.get_volume():.4f}"
    energy, force = atoms.get_potential_energy(), largest_force(atoms)
    return (name, f"{energy:.6f}", f"{force:.6f}", pressure, volume)
