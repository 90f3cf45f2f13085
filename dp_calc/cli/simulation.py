"""Options and inputs that ``dp-calc relax`` and ``dp-calc md`` share."""

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .console import CHECKPOINT
from .frames import why_unreadable

if TYPE_CHECKING:
    from ase import Atoms

    from .. import DP
    from .stepping import Stopped

__all__ = ["add_common_options", "add_number", "constraint_text", "load_calculator",
           "read_structure", "stopped", "whole"]  # fmt: skip

_UNITS = {
    "fmax": "eV/Å",
    "fs": "fs",
    "gpa": "GPa",
    "k": "K",
    "per-gpa": "1/GPa",
    "per-ps": "1/ps",
}
"""Unit of a number by the end of its option."""


def add_common_options(
    parser: argparse.ArgumentParser, output: str, output_help: str
) -> None:
    """Add what both commands take.

    Args:
        parser: of the command.
        output: name of the output if none is given.
        output_help: what the output is.
    """
    add = parser.add_argument
    add("structure", metavar="STRUCTURE", type=Path, help="any file that ASE reads")
    add("-m", "--model", metavar="FILE", type=Path, required=True, help=CHECKPOINT)
    add(
        "--frame", metavar="N", type=int, help="frame of the file (default: -1, the last)"
    )
    add(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        default=Path(output),
        help=f"{output_help} (default: {output})",
    )
    add("--head", help="branch of a multi-task checkpoint")
    add("--device", help="cpu, cuda, cuda:1, ... (default: chosen by what is there)")
    add("--dtype", choices=("float32", "float64"), help="default: that of the checkpoint")
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--resume", action="store_true", help="go on from the checkpoint, if there is one"
    )
    either.add_argument(
        "--overwrite", action="store_true", help="replace the files of an earlier run"
    )


def add_number(
    parser: argparse.ArgumentParser,
    name: str,
    text: str,
    default: float | None = None,
    **limits: float,
) -> None:
    """Add an option for a number.

    Args:
        parser: of the command.
        name: the option without dashes; its end tells the unit.
        text: for ``--help``.
        default: value if it is not given.
        limits: see ``_number``.
    """
    end = max((end for end in _UNITS if name.endswith(end)), key=len)
    convert = _number(_UNITS[end], **limits)
    parser.add_argument(
        f"--{name}", metavar="X", type=convert, default=default, help=text
    )


def _number(
    unit: str, above: float = -math.inf, least: float = -math.inf, most: float = math.inf
) -> Callable[[str], float]:
    """Type of an option: a number within limits, which catch a wrong unit.

    Args:
        unit: of the number.
        above: it must be larger.
        least: it must not be smaller.
        most: it must not be larger.
    """

    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (above < value and least <= value <= most and math.isfinite(value)):
            start = f"above {above:g} and up" if above > -math.inf else f"from {least:g}"
            raise argparse.ArgumentTypeError(
                f"the value is a number in {unit}, {start} to {most:g}, not {text!r}"
            )
        return value

    return convert


def whole(name: str, least: int) -> Callable[[str], int]:
    """Type of an option: a whole number from ``least`` on."""

    def convert(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"the {name} is a whole number of at least {least}, not {text!r}"
            )
        return int(text)

    return convert


def read_structure(path: Path, frame: int | None) -> "Atoms":
    """Read one structure, without results of any earlier calculation.

    Raises:
        ValueError: there is none; the message says why.
    """
    import ase.io

    if not path.is_file():
        raise ValueError(f"there is no structure file {path}")
    try:
        # Some formats take any index for one that they have.
        index = slice(-1, None) if frame is None else ":"
        frames = ase.io.read(path, index=index, do_not_split_by_at_sign=True)
    except Exception as error:
        reason = why_unreadable(error)
        raise ValueError(f"ASE cannot read a structure from {path}: {reason}") from error
    count = len(frames)
    if not -count <= (-1 if frame is None else frame) < count:
        raise ValueError(f"{path} holds {count} structures; there is no frame {frame}")
    atoms = frames[-1 if frame is None else frame]
    atoms.calc = None
    for name in ("energy", "energies", "forces", "stress", "virial", "error"):
        atoms.info.pop(name, None)
        atoms.arrays.pop(name, None)
    return atoms


def load_calculator(args: argparse.Namespace) -> "DP":
    """Load the model that the options name."""
    from .. import DP

    return DP(args.model, head=args.head, device=args.device, dtype=args.dtype)


def stopped(error: "Stopped") -> int:
    """Tell of a run that a signal stopped; the exit status, as shells count."""
    print(
        f"dp-calc: stopped after step {error.step}; everything is saved, and the same "
        "command with --resume goes on",
        file=sys.stderr,
    )
    return 128 + error.signal


def constraint_text(atoms: "Atoms") -> str:
    """Names of the constraints that came with a structure."""
    names = [type(constraint).__name__ for constraint in atoms.constraints]
    return f"{', '.join(names)}, from the file and kept" if names else "none"
