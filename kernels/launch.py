"""Where every kernel is launched, and how launches are counted."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

__all__ = ["counted", "launch"]

_counters: list[Counter[str]] = []
_lock = Lock()


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Run a kernel.

    Args:
        kernel: a function made by ``triton.jit``.
        grid: number of programs along each axis.
        *arguments: what the kernel reads at run time, in its order.
        **constants: what it is compiled for: its constants, ``num_warps`` and the like.
    """
    if _counters:
        _count(kernel.__name__)
    kernel[grid](*arguments, **constants)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count launches by the name of the kernel, in all threads, until the context ends.

    What is replayed from a CUDA graph was launched, and is counted, when it was recorded.

    Yields:
        Numbers of launches so far; a kernel that was never launched has 0.
    """
    counter: Counter[str] = Counter()
    with _lock:
        _counters.append(counter)
    try:
        yield counter
    finally:
        with _lock:  # by identity: counters with the same numbers are equal
            _counters[:] = [x for x in _counters if x is not counter]


def _count(name: str) -> None:
    with _lock:  # the backward runs in a thread of its own
        for counter in _counters:
            counter[name] += 1
