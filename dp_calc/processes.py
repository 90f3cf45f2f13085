"""What a forked process may not touch, told before it hangs or crashes."""

import os

import torch

__all__ = ["is_inherited", "note_use", "refuse_fork"]

_used_by: dict[str, int] = {}
"""Process that first had a model on a type of device. CUDA and the threads of PyTorch
start once for a process, which is why this is remembered for the process as a whole."""


def note_use(device: torch.device) -> None:
    """Remember that this process uses a device; neighbours always take the CPU too."""
    for kind in ("cpu", device.type):
        _used_by.setdefault(kind, os.getpid())


def refuse_fork(device: torch.device) -> None:
    """Refuse to compute where a fork has left PyTorch unable to.

    A fork copies the state of CUDA and of OpenMP, but not their threads: the first
    answers with errors, the second waits for ever. One thread needs no others.

    Raises:
        RuntimeError: naming the start method that works.
    """
    remedy = 'start processes with multiprocessing.get_context("spawn")'
    if device.type == "cuda" and is_inherited(device):
        raise RuntimeError(
            f"this process was forked after CUDA had been started; {remedy}"
        )
    if is_inherited(torch.device("cpu")) and torch.get_num_threads() > 1:
        raise RuntimeError(
            "this process was forked after a model had been loaded, and PyTorch would "
            f"wait for threads that the fork did not copy; {remedy}, or call "
            "torch.set_num_threads(1) first in the forked process"
        )


def is_inherited(device: torch.device) -> bool:
    """Whether the process that this one was forked from had used such a device."""
    return _used_by.get(device.type, os.getpid()) != os.getpid()
