"""A table that grows with the results, and a progress bar."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .console import progress

if TYPE_CHECKING:
    from ase import Atoms

    from .frames import FrameFiles

__all__ = ["Rows"]

_HEADER = ("frame", "formula", "atoms", "energy/eV", "eV/atom", "max |F|/(eV/Å)", "P/GPa")
_WIDTHS = (5, 10, 5, 14, 11, 14, 10)


class Rows:
    """Prints a line for each structure on stdout, and progress on stderr.

    Args:
        files: where the structures are from.
        start: number of the first one.
    """

    def __init__(self, files: "FrameFiles", start: int):
        self._files, self._number = files, start
        longest = len(files.label(len(files) - 1))
        self._widths = (max(longest, _WIDTHS[0]), *_WIDTHS[1:])
        self._bar = progress(None, len(files), "frame", start)

    def __enter__(self) -> "Rows":
        try:
            self._print(self._line(_HEADER))
        except OSError:
            self._bar.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def add(self, frames: Sequence["Atoms"]) -> None:
        """Show evaluated structures."""
        for frame in frames:
            self._print(self._line(_cells(self._files.label(self._number), frame)))
            self._number += 1
        self._bar.update(len(frames))

    def _line(self, cells: tuple[str, ...]) -> str:
        """Cells, right-aligned; one that fills the line if it is the last of fewer."""
        aligned = [f"{c:>{w}}" for c, w in zip(cells, self._widths, strict=False)]
        if len(cells) < len(self._widths):
            aligned[-1] = cells[-1]
        return "  ".join(aligned)

    def _print(self, line: str) -> None:
        if sys.stdout.isatty() and sys.stderr.isatty():
            self._bar.write(line)  # above the bar, not into it
        else:
            print(line)


def _cells(label: str, frame: "Atoms") -> tuple[str, ...]:
    from ase.units import GPa

    start = (label, frame.get_chemical_formula(), str(len(frame)))
    if "error" in frame.info:
        return (*start, f"failed: {frame.info['error']}")
    results = frame.calc.results
    largest = (results["forces"] ** 2).sum(1).max() ** 0.5
    pressure = "-"
    if "stress" in results:
        pressure = f"{-results['stress'][:3].mean() / GPa:.4f}"
    energy = results["energy"]
    numbers = (f"{energy:.6f}", f"{energy / len(frame):.6f}", f"{largest:.6f}")
    return (*start, *numbers, pressure)
