"""``dp-calc evaluate``: energies, forces and stress of the structures in a file."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .console import CHECKPOINT, print_table, progress
from .output import check_output, replacing

if TYPE_CHECKING:
    from ase import Atoms

    from .. import DP

__all__ = ["add_parser"]

_SUFFIXES = (".extxyz", ".xyz")
_HEADER = ("frame", "formula", "atoms", "energy/eV", "eV/atom", "max |F|/(eV/Å)", "P/GPa")
_STORED = ("energy", "free_energy", "energies", "forces", "stress")


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "evaluate",
        help="evaluate the structures in a file",
        description="Evaluate every structure in a file. A structure that cannot be "
        "evaluated is reported in the table, and the exit status is then 1.",
    )
    add = parser.add_argument
    add("structures", metavar="STRUCTURES", type=Path, help="any file that ASE reads")
    add("-m", "--model", metavar="FILE", type=Path, required=True, help=CHECKPOINT)
    add("-o", "--output", metavar="FILE", type=Path, help="extended XYZ with the results")
    add("--head", help="branch of a multi-task checkpoint")
    add("--device", help="cpu, cuda, cuda:1, ... (default: chosen by what is there)")
    add("--dtype", choices=("float32", "float64"), help="default: that of the checkpoint")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    if args.output is not None:
        inputs = (args.structures, args.model)
        check_output(args.output, "extended XYZ", _SUFFIXES, inputs)
    frames = _read_frames(args.structures)
    calc = _load(args)
    results = [_evaluate(calc, frame) for frame in progress(frames, len(frames), "frame")]
    if args.output is not None:
        _write(args.output, [frame for frame, _ in results])
    print_table(_HEADER, [_row(i, *result) for i, result in enumerate(results)])
    failed = sum(error is not None for _, error in results)
    if failed:
        print(f"dp-calc: {failed} of {len(frames)} frames failed", file=sys.stderr)
    return 1 if failed else 0


def _read_frames(path: Path) -> list["Atoms"]:
    import ase.io
    from ase.io.formats import UnknownFileTypeError

    if not path.is_file():
        raise ValueError(f"there is no structure file {path}")
    try:
        frames = ase.io.read(path, index=":")
    except Exception as error:  # each of ASE's many formats fails in its own way
        told = isinstance(error, ValueError | OSError | UnknownFileTypeError)
        reason = " ".join(str(error).split()) if told else "it fits no known format"
        raise ValueError(f"ASE cannot read structures from {path}: {reason}") from error
    if not frames:
        raise ValueError(f"{path} holds no structures")
    return frames


def _load(args: argparse.Namespace) -> "DP":
    from .. import DP

    return DP(args.model, head=args.head, device=args.device, dtype=args.dtype)


def _evaluate(calc: "DP", frame: "Atoms") -> tuple["Atoms", str | None]:
    """Copy of a frame with its results, and why there are none if there are none."""
    from ase.calculators.singlepoint import SinglePointCalculator

    evaluated = _without_results(frame)
    try:
        calc.calculate(evaluated)
    except (ValueError, ArithmeticError, RuntimeError) as error:
        evaluated.info["error"] = " ".join(str(error).split())
        return evaluated, evaluated.info["error"]
    stored = {name: calc.results[name] for name in _STORED if name in calc.results}
    evaluated.calc = SinglePointCalculator(evaluated, **stored)
    # ASE's container has no place for these two.
    evaluated.info["virial"] = calc.results["virial"]
    if "magnetic_forces" in calc.results:
        evaluated.arrays["magnetic_forces"] = calc.results["magnetic_forces"]
    return evaluated, None


def _without_results(frame: "Atoms") -> "Atoms":
    """Copy without results of any earlier calculation, which would look like ours."""
    copy = frame.copy()
    for name in (*_STORED, "virial", "magnetic_forces", "error"):
        copy.info.pop(name, None)
        copy.arrays.pop(name, None)
    return copy


def _row(index: int, frame: "Atoms", error: str | None) -> tuple[str, ...]:
    from ase.units import GPa

    start = (str(index), frame.get_chemical_formula(), str(len(frame)))
    if error is not None:
        return (*start, f"failed: {error}")
    results = frame.calc.results
    largest = (results["forces"] ** 2).sum(1).max() ** 0.5
    pressure = "-"
    if "stress" in results:
        pressure = f"{-results['stress'][:3].mean() / GPa:.4f}"
    energy = results["energy"]
    numbers = (f"{energy:.6f}", f"{energy / len(frame):.6f}", f"{largest:.6f}")
    return (*start, *numbers, pressure)


def _write(path: Path, frames: list["Atoms"]) -> None:
    import ase.io

    with replacing(path) as temporary:
        ase.io.write(temporary, frames, format="extxyz")
