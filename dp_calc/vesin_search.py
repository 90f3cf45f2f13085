"""Searches for pairs with vesin, on the CPU or on a CUDA device."""

import math
import warnings
from collections.abc import Callable

import torch
import vesin
from torch import Tensor

from .boxes import heights, search_box
from .structure import Structure

__all__ = ["Pairs", "VesinSearch"]

Pairs = tuple[Tensor, Tensor, Tensor]

_NUDGE = 3e-10
"""Å. Less than the slack of a search, and more than a float64 loses in a cell."""

_BYTES_PER_PAIR = 28
"""What vesin stores for each: two indices and three shifts."""


class VesinSearch:
    """A search, as ``pairs`` describes it, that leaves its pairs on a device.

    What vesin cannot do on a CUDA device it does on the CPU, with one warning.

    Args:
        device: where the pairs are wanted.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._warned = False

    def __call__(self, structure: Structure, reach: float) -> Pairs:
        """Find all pairs up to a distance in Å, see the module ``pairs``."""
        if self.device.type == "cuda":
            try:
                return _search_on_gpu(structure, reach, self.device)
            except RuntimeError as error:
                self._warn(error)
        points, box, reach = _usable_box(structure, reach, _breaks_on_cpu)
        return _compute(points, box, reach, "auto")

    def _warn(self, error: RuntimeError) -> None:
        if not self._warned:
            reason = " ".join(str(error).split())
            warnings.warn(
                "neighbours are searched on the CPU, which is slower, since vesin could "
                f"not do it on {self.device}: {reason}",
                stacklevel=2,
            )
        self._warned = True


def _search_on_gpu(structure: Structure, reach: float, device: torch.device) -> Pairs:
    """The same without leaving the device; its current stream is made to wait.

    Raises:
        RuntimeError: too many pairs for the room that vesin makes, or it cannot run here.
    """
    points, box, reach = _usable_box(structure, reach, _breaks_on_gpu)
    points = _apart(points)
    consumer = torch.cuda.current_stream(device)
    _make_room(len(points), reach, device)
    # vesin changes the device and works on the default stream, whatever is current.
    default = torch.cuda.default_stream(device)
    with torch.cuda.device(device), torch.cuda.stream(default):
        on_device = points.to(device), box.to(device)
        # By cells always: its other algorithm sees one image of each atom only.
        pairs = _compute(*on_device, reach, "cell_list")
        default.synchronize()
    for tensor in pairs:
        tensor.record_stream(consumer)
    return pairs


def _compute(points: Tensor, box: Tensor, reach: float, algorithm: str) -> Pairs:
    # A new object for each search: the room in a used one depends on earlier structures.
    search = vesin.NeighborList(cutoff=reach, full_list=True, algorithm=algorithm)
    pairs, shift = search.compute(points, box, True, "PS")
    dst, src = pairs.view(torch.int64).unbind(1)
    return dst, src, shift.to(torch.int64)


def _apart(points: Tensor) -> Tensor:
    """Points shifted by less than the slack of a search, each by another vector.

    On CUDA devices vesin takes no notice of pairs at a distance of exactly zero, but two
    atoms in the same place must be found.
    """
    index = torch.arange(len(points), device=points.device)
    digits = torch.stack([index % 1000, index // 1000 % 1000, index // 1_000_000], 1)
    return points + _NUDGE * digits


def _make_room(n_points: int, reach: float, device: torch.device) -> None:
    """Give memory back that PyTorch keeps for itself if vesin will need it."""
    pairs = n_points * max(128, math.ceil(reach**3))
    free, _ = torch.cuda.mem_get_info(device)
    if pairs * _BYTES_PER_PAIR > free:
        torch.cuda.empty_cache()


def _usable_box(
    structure: Structure, reach: float, breaks: Callable[[Tensor], bool]
) -> tuple[Tensor, Tensor, float]:
    """Points, box and reach of a search; a longer reach where vesin's grid needs that.

    Args:
        structure: what to search.
        reach: distance in Å.
        breaks: whether vesin cannot use a grid with so many bins along each axis, (3,).
    """
    points, box = search_box(structure, reach)
    while breaks(torch.floor(heights(box) / reach).clamp(min=1)):
        reach *= 1.1
        points, box = search_box(structure, reach)
    return points, box, reach


def _breaks_on_cpu(bins: Tensor) -> bool:
    """Whether vesin would leave an axis of its grid without a bin, and divide by zero.

    It thins out a grid of more than 1e5 bins to that number and keeps its aspect ratio,
    however elongated it is. Seen in vesin 0.6.2; the limits here are a little stricter.
    """
    x, y, z = bins.tolist()
    if x * y * z < 0.9e5:
        return False
    z_left = math.floor((1e5 * z**2 / (x * y)) ** (1 / 3))
    y_left = math.floor(y / z * z_left)
    return min(z_left, y_left, math.floor(x / y * y_left)) < 2


def _breaks_on_gpu(bins: Tensor) -> bool:
    """Whether vesin would count the bins in an int32 that is too small for them.

    It thins out a grid of more than 8192 bins, the longest axis one bin at a time.
    """
    return bool(bins.prod() > 1e6)
