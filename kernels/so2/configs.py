"""How the kernels are launched."""

from dataclasses import dataclass

__all__ = ["LAUNCH", "Launch"]


@dataclass(frozen=True)
class Launch:
    """Sizes that decide speed and nothing else.

    Attributes:
        block: edges of a program in the linear maps.
        columns: most columns of one product there.
        warps: warps of a program there.
        stages: loads in flight there.
        row_block: edges of a program where rows are rotated.
        row_warps: warps of a program there.
        sum_block: rows of a tile that are summed at a time.
    """

    block: int = 64
    columns: int = 64
    warps: int = 4
    stages: int = 2
    row_block: int = 8
    row_warps: int = 4
    sum_block: int = 32


LAUNCH = Launch()
"""Right on every GPU; measured on an H200."""
