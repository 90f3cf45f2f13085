"""Where every kernel is launched, and what goes with it: counting, compiling ahead."""

import os
from collections import Counter
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from torch import Tensor

__all__ = ["compiled_ahead", "counted", "launch"]

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
    compiling = _compiling.get()
    if compiling is not None:
        compiling.add(kernel, grid, arguments, constants)
        return
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


@contextmanager
def compiled_ahead() -> Iterator[None]:
    """Run no kernel, and compile those that this thread launches, all at the same time.

    Nothing is written to the results of kernels: whatever is made of them here is garbage
    and must not be used. When the context ends, kernels launched with such arguments run
    at once. One that cannot be compiled says so when it is launched after that.

    An error, or Ctrl-C, ends the context without waiting for what is being compiled.
    """
    with _Compiling() as compiling:
        token = _compiling.set(compiling)
        try:
            # Backward passes, which else have a thread of their own, stay in this one.
            with torch.autograd.set_multithreading_enabled(False):
                yield
        finally:
            _compiling.reset(token)
        compiling.wait()


class _Compiling:
    """Kernels that are being compiled. Triton does so for several threads at a time."""

    def __init__(self) -> None:
        self._threads = futures.ThreadPoolExecutor(_n_cores())
        self._begun: dict[tuple, futures.Future] = {}

    def __enter__(self) -> "_Compiling":
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def add(self, kernel: Any, grid: tuple, arguments: tuple, constants: dict) -> None:
        """Begin with a kernel, if it is new."""
        # Triton asks for no more of a tensor, whose memory is not held until then.
        arguments = tuple(
            _Pointer(x.dtype, x.data_ptr() % 16) if isinstance(x, Tensor) else x
            for x in arguments
        )
        types = tuple(map(type, arguments))  # 1, 1.0 and True are equal
        key = (kernel, arguments, types, tuple(constants.items()))
        if key in self._begun:
            return
        device = torch.cuda.current_device() if torch.cuda.is_initialized() else None

        def compile_kernel() -> None:
            with nullcontext() if device is None else torch.cuda.device(device):
                kernel.warmup(*arguments, grid=grid, **constants)

        self._begun[key] = self._threads.submit(compile_kernel)

    def wait(self) -> None:
        """Until all are compiled, or have failed."""
        futures.wait(self._begun.values())


@dataclass(frozen=True)
class _Pointer:
    """A tensor as the compiler sees it: dtype, and what divides its address."""

    dtype: torch.dtype
    remainder: int

    def data_ptr(self) -> int:
        return self.remainder


def _n_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_compiling: ContextVar[_Compiling | None] = ContextVar("_compiling", default=None)
