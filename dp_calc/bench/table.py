"""Tables of benchmarks as CSV with the circumstances in front."""

import csv
from collections.abc import Sequence
from pathlib import Path

from .arms import Arm
from .sitting import COLUMNS, Counts, Row

__all__ = ["describe", "write"]

_MEMORY = {
    "cuda": "peaks of PyTorch's allocator, plus the most that vesin held beside it; full "
    "from process start to the end of the warm-ups, steady and reserved after them",
    "cpu": "peak resident memory above that after loading the model; full to the end of "
    "the warm-ups, steady after them; reserved does not exist",
}


def describe(
    environment: dict[str, str] | None,
    command: str,
    arms: Sequence[Arm],
    counts: Counts,
) -> str:
    """Circumstances of a sitting, one a line; no host, user or folder among them.

    Args:
        environment: as a worker told it; None if none ran.
        command: how to do it again.
        arms: what was compared.
        counts: how often things were done.
    """
    lines = [f"command: {command}"]
    if environment is not None:
        lines += [
            f"device: {environment['device']}, {environment['threads']} threads",
            f"versions: {environment['versions']}",
            f"memory in 1e9 bytes: {_MEMORY[environment['kind']]}",
        ]
    lines += [
        "system: diamond, 3.567 Å, three frames with atoms moved by 0.02 Å (rms along "
        "each axis)",
        f"protocol: {counts.warmups} warm-ups, {counts.repeats} evaluations through ASE "
        f"(energy, forces, virial, stress), synchronised, ASE's cache reset; arms in "
        f"processes of their own, interleaved in {counts.blocks} blocks",
        "first_call_s: from process start, imports included",
        "success: True, or False and the reason",
        *(f"arm {arm.name}: {_settings(arm)}" for arm in arms),
    ]
    return "\n".join(lines)


def _settings(arm: Arm) -> str:
    pairs = (f"{name}={value}" for name, value in arm.settings.items())
    return ", ".join(pairs) or "no settings, as a user has it by default"


def write(path: Path, circumstances: str, rows: Sequence[Row]) -> None:
    """Write a table.

    Args:
        path: the file.
        circumstances: lines that go in front, each after a ``#``.
        rows: with the keys ``COLUMNS``.
    """
    with open(path, "w", newline="", encoding="utf-8") as file:
        file.writelines(f"# {line}\n" for line in circumstances.splitlines())
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
