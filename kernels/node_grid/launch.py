"""How the kernels are launched."""

from dataclasses import dataclass
from functools import lru_cache

import torch

__all__ = ["MOST_COEFFICIENTS", "Launch", "launch_for"]

MOST_COEFFICIENTS = 80
"""More do not fit into the shared memory of a multiprocessor, 99 KiB on many GPUs."""

_USUAL = 48
"""Coefficients up to which what was measured holds."""


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


_BY_GPU: dict[str, dict[tuple[str, bool], Launch]] = {}
"""Per name of a GPU, precision of the products, and whether it is the backward."""


def launch_for(
    device: torch.device, precision: str, backward: bool, n_coefficients: int
) -> Launch:
    """What was measured for this device, or what is right everywhere."""
    if n_coefficients > _USUAL:
        return Launch(rows=32, points=16)
    if device.type != "cuda":
        return Launch()
    return _BY_GPU.get(_name(device.index or 0), {}).get((precision, backward), Launch())


@lru_cache
def _name(index: int) -> str:
    return torch.cuda.get_device_name(index)
