"""What the commands share in showing text."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["CHECKPOINT", "print_fields", "print_table", "progress"]

CHECKPOINT = "checkpoint (.pt), or the name of a released one"
"""What to give for a model, in the help of a command."""


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns; a value may have several lines."""
    for name, value in fields:
        first, *rest = value.splitlines() or [""]
        print(f"  {name:<14} {first}")
        for line in rest:
            print(f"  {'':<14} {line}")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a header, right-aligned; a shorter row ends in free text."""
    full = [row for row in rows if len(row) == len(header)]
    columns = range(len(header))
    widths = [max(len(row[c]) for row in [header, *full]) for c in columns]
    for row in [header, *rows]:
        cells = list(row) if len(row) == len(header) else list(row[:-1])
        line = "  ".join(f"{cell:>{widths[c]}}" for c, cell in enumerate(cells))
        print(line if len(row) == len(header) else f"{line}  {row[-1]}")


def progress(items: Iterable[Any] | None, total: int, unit: str, initial: int = 0) -> Any:
    """Pass items on and show a progress bar on stderr; without items the bar itself."""
    from tqdm import tqdm

    # A log file gets a line now and then instead of one for every step.
    interval = 0.1 if sys.stderr.isatty() else 10.0
    return tqdm(
        items,
        total=total,
        unit=unit,
        initial=initial,
        mininterval=interval,
        file=sys.stderr,
    )
