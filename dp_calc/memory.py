"""What to say when a structure does not fit into memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from .backward import Backward
from .models import EdgeList

__all__ = ["explain_out_of_memory"]

_CPU_ERROR = "DefaultCPUAllocator: can't allocate memory"


@contextmanager
def explain_out_of_memory(
    model: nn.Module, edges: EdgeList, backward: Backward
) -> Iterator[None]:
    """Turn running out of memory into a sentence with numbers.

    Raises:
        OutOfMemoryError: of PyTorch; with atoms, edges, bytes, and what would fit.
    """
    try:
        yield
    except RuntimeError as error:
        # On the CPU it is a plain RuntimeError.
        told = isinstance(error, torch.OutOfMemoryError) or _CPU_ERROR in str(error)
        if not told:
            raise
        raise torch.OutOfMemoryError(_sentence(model, edges, backward)) from error


def _sentence(model: nn.Module, edges: EdgeList, backward: Backward) -> str:
    free, total = _memory(model.device)
    start = (
        f"{edges.n_atoms} atoms with {edges.n_edges} edges do not fit into the "
        f"{free / 1e9:.3g} of {total / 1e9:.3g} GB that are free"
    )
    per_edge = getattr(model, "bytes_per_edge", None)
    if per_edge is None:
        return f"{start}; evaluate fewer atoms at a time"
    if backward.name == "native":
        atoms = int(edges.n_atoms * free / (per_edge * max(edges.n_edges, 1)))
        return (
            f'{start}: backward="native" keeps {per_edge} bytes per edge, enough for '
            f'{atoms} such atoms; use backward="stream"'
        )
    return f"{start}; evaluate fewer atoms, or give a smaller cohort_edges"


def _memory(device: torch.device) -> tuple[int, int]:
    """Bytes that are free, what PyTorch holds unused included, and bytes in all."""
    if device.type != "cuda":
        page = os.sysconf("SC_PAGE_SIZE")
        return tuple(page * os.sysconf(f"SC_{x}_PAGES") for x in ("AVPHYS", "PHYS"))
    free, total = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free, total
