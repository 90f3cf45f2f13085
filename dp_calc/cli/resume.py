"""What makes a run the same run, and what it takes to go on with it."""

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import check_output

if TYPE_CHECKING:
    from ase import Atoms

    from .. import DP
    from .checkpoint import Checkpoint

__all__ = ["check_run_files", "circumstances", "fingerprint", "model_identity",
           "say_differences", "settle"]  # fmt: skip


def check_run_files(
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
    from .growing import refuse_other

    for path in paths.values():
        check_output(path, "given", (path.suffix.lower(),), inputs)
    if args.resume and paths["checkpoint"].is_file():
        stored = Checkpoint.read(paths["checkpoint"], args.command_name)
        for role, mark in stored.marks.items():
            refuse_other(paths[role], mark)
        return stored
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
    digest.update(atoms.cell.array.tobytes() + atoms.pbc.tobytes())
    digest.update(str([c.todict() for c in atoms.constraints]).encode())
    for container in (atoms.arrays, atoms.info):
        for name in sorted(container, key=str):
            digest.update(str(name).encode() + _content(container[name]))
    return digest.hexdigest()[:16]


def _content(value: Any) -> bytes:
    if not hasattr(value, "dtype"):
        return str(value).encode()
    # Objects have addresses for bytes; an array of many numbers is cut short as a string.
    return str(value.tolist()).encode() if value.dtype.hasobject else value.tobytes()


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
