"""How long the stages of an evaluation take."""

import time
from itertools import pairwise
from typing import Any

import torch

__all__ = ["Stopwatch"]


class Stopwatch:
    """Times stages that follow each other.

    On a CUDA device the marks between stages are events in its current stream: a stage
    ends when its work is done there, yet nothing waits until the times are read.

    Args:
        device: where most of the work is done. The first stage starts now.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._names: list[str] = []
        self._marks: list[Any] = [self._mark()]  # all events, or all numbers

    def lap(self, name: str) -> None:
        """End a stage and start the next one."""
        self._names.append(name)
        self._marks.append(self._mark())

    def seconds(self) -> dict[str, float]:
        """Time of each stage so far; waits until the last one is done."""
        marks = self._marks
        if self._device.type == "cuda":
            marks[-1].synchronize()
            times = [a.elapsed_time(b) / 1e3 for a, b in pairwise(marks)]
        else:
            times = [b - a for a, b in pairwise(marks)]
        return dict(zip(self._names, times, strict=True))

    def _mark(self) -> float | torch.cuda.Event:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event
