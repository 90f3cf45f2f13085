"""How the kernels are launched."""

from dataclasses import dataclass

__all__ = ["LAUNCH", "Launch", "LayerLaunch", "layer_launch"]


@dataclass(frozen=True)
class Launch:
    """Sizes that decide speed and nothing else.

    Attributes:
        row_block: edges of a program where rows are rotated.
        row_warps: warps of a program there.
        sum_block: rows of a tile that are summed at a time.
        sum_backward_block: likewise in the backward.
    """

    row_block: int = 8
    row_warps: int = 4
    sum_block: int = 32
    sum_backward_block: int = 64


LAUNCH = Launch()
"""Right on every GPU; measured on an H200."""


@dataclass(frozen=True)
class LayerLaunch:
    """The same for the layers of the stack.

    Attributes:
        block: edges of a program.
        columns: most columns of one product.
        warps: warps of a program.
        stages: loads in flight.
    """

    block: int
    columns: int
    warps: int
    stages: int


def layer_launch(channels: int) -> LayerLaunch:
    """What fits into shared memory and registers for streams of so many channels.

    Measured on an H200 for up to 32 channels. For more, the matrices of two loads are
    beyond its shared memory, and the rows of 64 edges beyond the registers.
    """
    if channels <= 32:
        return LayerLaunch(block=64, columns=64, warps=4, stages=2)
    block = 32 if channels <= 64 else 16
    return LayerLaunch(block=block, columns=64, warps=8, stages=1)
