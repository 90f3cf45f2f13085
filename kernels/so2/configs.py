"""How the kernels are launched."""

from dataclasses import dataclass
from functools import lru_cache

import torch

__all__ = ["Launch", "launch_for"]


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


_BY_GPU: dict[str, dict[str, Launch]] = {}
"""Per name of a GPU and precision of the products; measured by ``dp-calc tune``."""


def launch_for(device: torch.device, precision: str) -> Launch:
    """What was measured for this device, or what is right everywhere."""
    if device.type != "cuda":
        return Launch()
    return _BY_GPU.get(_name(device.index or 0), {}).get(precision, Launch())


@lru_cache
def _name(index: int) -> str:
    return torch.cuda.get_device_name(index)
