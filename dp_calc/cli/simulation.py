"""What ``dp-calc relax`` and ``dp-calc md`` share: options, inputs, and going on."""

import argparse
import hashlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import CHECKPOINT
from .output import check_output

if TYPE_CHECKING:
    from ase import Atoms

    from .. import DP
    from .checkpoint import Checkpoint
    from .stepping import Stopped

__all__ = ["add_common_options", "circumstances", "constraint_text", "fingerprint",
           "load_calculator", "model_identity", "number", "read_structure",
           "say_differences", "settle", "stopped", "tell", "whole"]  # fmt: skip


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add what both commands take."""
    add = parser.add_argument
    add("structure", metavar="STRUCTURE", type=Path, help="any file that ASE reads")
    add("-m", "--model", metavar="FILE", type=Path, required=True, help=CHECKPOINT)
    add(
        "--frame", metavar="N", type=int, help="frame of the file (default: -1, the last)"
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


def number(
    name: str, unit: str, above: float = -math.inf, least: float = -math.inf,
    most: float = math.inf,
) -> Callable[[str], float]:  # fmt: skip
    """Type of an option: a number within limits, which catch a wrong unit.

    Args:
        name: what it is, as an error calls it.
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
            start = f"above {above:g}" if above > -math.inf else f"from {least:g}"
            raise argparse.ArgumentTypeError(
                f"the {name} is a number in {unit}, {start} to {most:g}, not {text!r}"
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
    from ase.io.formats import UnknownFileTypeError

    if not path.is_file():
        raise ValueError(f"there is no structure file {path}")
    try:
        atoms = ase.io.read(path, index=-1 if frame is None else frame)
    except IndexError as error:
        raise ValueError(f"{path} has no frame {frame or 0}") from error
    except Exception as error:  # each of ASE's many formats fails in its own way
        told = isinstance(error, ValueError | OSError | UnknownFileTypeError)
        reason = " ".join(str(error).split()) if told else "it fits no known format"
        raise ValueError(f"ASE cannot read a structure from {path}: {reason}") from error
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


def tell(
    paths: Mapping[str, Path], inputs: Sequence[Path], args: argparse.Namespace
) -> "Checkpoint | None":
    """Check where the results go, and read the checkpoint to go on from.

    Args:
        paths: the files of the run by role, ``"checkpoint"`` among them.
        inputs: files that must not be replaced.
        args: with ``command_name``, ``resume`` and ``overwrite``.

    Returns:
        The checkpoint, or None for a run from the start.

    Raises:
        ValueError: nothing can or should be written there; the message says why.
    """
    from .checkpoint import Checkpoint

    for path in paths.values():
        check_output(path, "given", (path.suffix.lower(),), inputs)
    if args.resume and paths["checkpoint"].is_file():
        return Checkpoint.read(paths["checkpoint"], args.command_name)
    # A run that was stopped before its first checkpoint leaves an empty file.
    there = [p for p in paths.values() if p.exists() and p.stat().st_size]
    if there and args.resume:
        raise ValueError(
            f"{there[0]} cannot be continued: there is no {paths['checkpoint']}; give "
            "--overwrite to start anew"
        )
    if there and not args.overwrite:
        raise ValueError(
            f"{there[0]} exists already; give --resume to continue that run, --overwrite "
            "to replace it, or another name with -o"
        )
    return None


def settle(
    given: Mapping[str, Any], defaults: Mapping[str, Any], stored: "Checkpoint | None"
) -> dict[str, Any]:
    """Settings of a run: what was asked for, else what the run had, else defaults.

    Raises:
        ValueError: something was asked for that the run to go on with did not have.
    """
    from .checkpoint import differences

    asked = {name: value for name, value in given.items() if value is not None}
    if stored is None:
        return {**given, **defaults, **asked}
    changed = differences(stored.settings, asked)
    if changed:
        raise ValueError(
            f"this is not the run to resume: {'; '.join(changed)}; give what it was "
            "started with, or --overwrite to start anew"
        )
    return dict(stored.settings)


def fingerprint(atoms: "Atoms") -> str:
    """A name for a structure, constraints and further inputs included."""
    digest = hashlib.sha256()
    for name in sorted(atoms.arrays):
        digest.update(name.encode() + atoms.arrays[name].tobytes())
    digest.update(atoms.cell.array.tobytes() + atoms.pbc.tobytes())
    rest = [c.todict() for c in atoms.constraints], sorted(atoms.info.items())
    digest.update(str(rest).encode())
    return digest.hexdigest()[:16]


def model_identity(calc: "DP") -> dict[str, str]:
    """What a run must not change about its model."""
    digest = hashlib.sha256()
    with calc.model.source.path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    precision = str(calc.model.dtype).removeprefix("torch.")
    return {
        "model": digest.hexdigest()[:16],
        "head": str(calc.model.source.head),
        "dtype": precision,
    }


def circumstances(calc: "DP") -> dict[str, Any]:
    """What changes the last digits of a result."""
    import ase
    import numpy
    import torch

    from .. import __version__

    device = str(calc.device)
    if calc.device.type == "cuda":
        device = f"{device} ({torch.cuda.get_device_name(calc.device)})"
    return {
        "device": device,
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "ase": ase.__version__,
        "dp-calc": __version__,
    }


def say_differences(stored: "Checkpoint", now: Mapping[str, Any]) -> None:
    """Warn where a continued run can no longer equal an uninterrupted one."""
    from .checkpoint import differences

    changed = differences(stored.circumstances, now)
    if changed:
        print(
            f"dp-calc: warning: {'; '.join(changed)}: the run goes on, but its last "
            "digits may differ from those of a run without interruption",
            file=sys.stderr,
        )


def constraint_text(atoms: "Atoms") -> str:
    """Names of the constraints that came with a structure."""
    names = [type(constraint).__name__ for constraint in atoms.constraints]
    return f"{', '.join(names)}, from the file and kept" if names else "none"
