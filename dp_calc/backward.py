"""What is kept for the backward pass: everything, or node tensors only."""

import os
from dataclasses import dataclass

import torch
from torch import nn

from .compiled_model import CompiledModel
from .models import EdgeList, StreamExecutor, TiledExecutor, make_cohorts, make_tiles
from .recorded_model import RecordedModel
from .settings import Settings

__all__ = ["Backward", "check_backward", "choose_backward"]

_CHUNK = 128
"""Atoms at a time in the streaming backward; a Neo-sized model needs about 1 MB each."""

_USABLE = 0.5
"""Share of the device's memory that ``auto`` lets the native backward fill. Of all of it,
not of what happens to be free: the choice, and so the last bit of a result, must not
depend on what else runs."""

_USABLE_RECORDED = 0.1
"""Likewise where a recorded evaluation, which holds its memory, wins a fourth in time."""


@dataclass(frozen=True)
class Backward:
    """A choice for one structure and its reason.

    Attributes:
        name: ``"native"``, ``"cohort"`` or ``"stream"``.
        why: the reason, a clause.
        by: what evaluates it: ``"compiled"`` code, a ``"recorded"`` evaluation, or the
            model as it is, ``"eager"``.
    """

    name: str
    why: str
    by: str = "eager"

    def executor(self, model: nn.Module, settings: Settings):
        """What goes over edges and atoms; None if all of them are kept as they are."""

        def tiled(edges: EdgeList, view) -> TiledExecutor:
            tiles = make_tiles(edges, model.dtype)
            return TiledExecutor(edges.vec, view, tiles, far=2 * model.rcut)

        if self.name != "stream":
            return tiled if getattr(model, "kernel_options", None) else None

        def stream(edges: EdgeList, view) -> StreamExecutor:
            cohorts = make_cohorts(edges, settings.cohort_edges, model.dtype)
            return StreamExecutor(edges, view, cohorts, _CHUNK, far=2 * model.rcut)

        return stream


def check_backward(model: nn.Module, settings: Settings) -> None:
    """Refuse a streaming backward of a model that has none.

    Raises:
        ValueError: saying what to use.
    """
    if settings.backward == "stream" and not hasattr(model, "bytes_per_edge"):
        raise ValueError(
            f'backward="stream" is not offered for {model.architecture} models; use '
            '"native" or "auto"'
        )


def choose_backward(
    model: nn.Module,
    settings: Settings,
    edges: EdgeList,
    compiled: CompiledModel | None = None,
    recorded: RecordedModel | None = None,
) -> Backward:
    """Decide for one structure.

    Args:
        model: the model; only one with ``bytes_per_edge`` can be streamed.
        settings: ``backward`` asks for one kind or leaves the choice.
        edges: of the structure.
        compiled: the compiled model, where there is one.
        recorded: the recorded model, where there is one.
    """
    asked = f'backward="{settings.backward}" was asked for'
    if settings.backward in ("native", "cohort"):
        by = "eager" if recorded is None else "recorded"
        return Backward(settings.backward, asked, by)
    if not hasattr(model, "bytes_per_edge"):
        return Backward("native", "this kind of model has no other")
    needed, memory = edges.n_edges * model.bytes_per_edge, _memory(model.device)
    kept = f"all activations take about {_gigabytes(needed)} of {_gigabytes(memory)}"
    if recorded is not None and needed < _USABLE_RECORDED * memory:
        return Backward("native", kept, "recorded")
    if compiled is not None and compiled.holds(edges):
        return Backward("stream", "compiled code goes over edges that way", "compiled")
    if settings.backward == "stream":
        return Backward("stream", asked)
    return Backward("native" if needed < _USABLE * memory else "stream", kept)


def _memory(device: torch.device) -> int:
    """Bytes that the device has in all."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _gigabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.2g} GB"
