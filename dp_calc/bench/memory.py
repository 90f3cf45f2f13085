"""Peak memory of a process, in GB of 1e9 bytes."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
import vesin

__all__ = ["Memory", "memory_of"]

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Memory(Protocol):
    """What a device holds for this process. Counting starts at once."""

    def restart(self) -> None:
        """Forget all peaks."""

    def allocated(self) -> float:
        """Largest amount in use since the start."""

    def reserved(self) -> float | str:
        """Largest amount kept for use since the start; empty where nothing is."""

    def watching(self) -> Any:
        """Context in which everything is counted, at the price of time."""


def memory_of(device: torch.device) -> Memory:
    """Count what a device holds from now on."""
    return _CudaMemory(device) if device.type == "cuda" else _ResidentMemory()


class _CudaMemory:
    def __init__(self, device: torch.device):
        self._device = device
        self._beside = 0

    def restart(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)
        self._beside = 0

    def allocated(self) -> float:
        return (torch.cuda.max_memory_allocated(self._device) + self._beside) / 1e9

    def reserved(self) -> float:
        return (torch.cuda.max_memory_reserved(self._device) + self._beside) / 1e9

    @contextmanager
    def watching(self) -> Iterator[None]:
        # vesin frees what it took at the end of a search: it is looked at in between.
        compute = vesin.NeighborList.compute

        def watched(*args: Any, **keywords: Any) -> Any:
            before = self._used_by_others()
            result = compute(*args, **keywords)
            self._beside = max(self._beside, self._used_by_others() - before)
            return result

        vesin.NeighborList.compute = watched
        try:
            yield
        finally:
            vesin.NeighborList.compute = compute

    def _used_by_others(self) -> int:
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free - torch.cuda.memory_reserved(self._device)


class _ResidentMemory:
    def __init__(self):
        self._start = _resident("VmRSS")
        self.restart()

    def restart(self) -> None:
        if _CLEAR.exists():
            _CLEAR.write_text("5")  # Linux: the peak becomes what is in use

    def allocated(self) -> float:
        return (_resident("VmHWM") - self._start) / 1e9

    def reserved(self) -> str:
        return ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        yield


def _resident(field: str) -> int:
    """Resident bytes now (VmRSS) or at most (VmHWM); always at most without /proc."""
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
