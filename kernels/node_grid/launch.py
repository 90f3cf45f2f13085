"""How the kernels are launched."""

from dataclasses import dataclass

__all__ = ["MOST_COEFFICIENTS", "Launch", "launch_for"]

MOST_COEFFICIENTS = 80
"""More do not fit into the shared memory of a multiprocessor, 99 KiB on many GPUs."""

_USUAL = 48
"""Coefficients of the released sizes; with more, a program takes fewer rows."""


@dataclass(frozen=True)
class Launch:
    """Sizes that decide speed and nothing else, powers of two.

    Attributes:
        rows: rows of a program, a row being one channel of one node; at least 16.
        points: points of the grid at a time, 16 to 64.
        piece: most coefficients of one product, 16 to 64.
        warps: warps of a program.
        stages: loads in flight.
    """

    rows: int = 64
    points: int = 32
    piece: int = 32
    warps: int = 4
    stages: int = 1


def launch_for(n_coefficients: int) -> Launch:
    """What is right on every GPU."""
    return Launch() if n_coefficients <= _USUAL else Launch(rows=32, points=16)
