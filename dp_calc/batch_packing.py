"""Members of a batch as one system, and its results as theirs.

A batch is a disjoint union of graphs: one system whose atoms happen to have no edges to
those of other structures.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields

import torch

from .batch_reading import Member
from .committee import CommitteeEngine, combine, members_of
from .engine import Engine, Outputs
from .models import EdgeList, Potential
from .reading import System

__all__ = ["default_max_edges", "evaluate_members"]

_CPU_BATCH = 256e6
"""Bytes. Larger batches leave the caches of a CPU and are slower."""

_GPU_SHARE = 1 / 8
"""Of the memory of a GPU, all of it: what else uses it must not change results."""

_GPU_EDGES = 2**19
"""A GPU is busy with fewer edges; more would only delay the first results."""

_UNSTATED = 16384
"""Bytes per edge of models that do not state it, with room to spare."""


def default_max_edges(model: Potential) -> int:
    """Edges of a batch that is fast and leaves memory for others."""
    per_edge = max(
        getattr(member, "bytes_per_edge", 0) or _UNSTATED for member in members_of(model)
    )
    if model.device.type != "cuda":
        return math.ceil(_CPU_BATCH / per_edge)
    memory = torch.cuda.get_device_properties(model.device).total_memory
    return min(_GPU_EDGES, math.ceil(_GPU_SHARE * memory / per_edge))


def evaluate_members(
    engine: Engine | CommitteeEngine, members: Sequence[Member], device: torch.device
) -> list[Outputs]:
    """Evaluate structures together.

    Args:
        engine: runs the model or the models.
        members: with the same kinds of conditions.
        device: where the model is.

    Returns:
        What the engine would give for each member by itself, but on the CPU, in memory
        of its own.

    Raises:
        FloatingPointError: a result of a member is infinite or not a number.
    """
    system = _join(members, device)
    arguments = system.types, system.edges, system.conditions
    n_atoms = [len(member.types) for member in members]
    if not isinstance(engine, CommitteeEngine):
        return list(_split(engine.evaluate(*arguments), n_atoms))
    each = (_split(outputs, n_atoms) for outputs in engine.evaluate_each(*arguments))
    return [combine(outputs) for outputs in zip(*each, strict=True)]


def _join(members: Sequence[Member], device: torch.device) -> System:
    """The disjoint union."""
    n_atoms = torch.tensor([len(m.types) for m in members])
    n_edges = torch.tensor([len(m.edges[0]) for m in members])
    first = (n_atoms.cumsum(0) - n_atoms).repeat_interleave(n_edges).to(device)
    src, dst, vec = (torch.cat(x) for x in zip(*(m.edges for m in members), strict=True))
    edges = EdgeList.from_sorted(src + first, dst + first, vec, int(n_atoms.sum()))
    conditions = {
        name: torch.cat([m.conditions[name] for m in members]).to(device)
        for name in members[0].conditions
    }
    return System(torch.cat([m.types for m in members]).to(device), edges, conditions)


def _split(outputs: Outputs, n_atoms: list[int]) -> Iterator[Outputs]:
    """What belongs to each member."""
    tensors = {field.name: getattr(outputs, field.name) for field in fields(outputs)}
    # Copied for all members at once: every copy waits for the device.
    parts = {
        name: tensor.cpu().split(n_atoms)
        for name, tensor in tensors.items()
        if tensor is not None
    }
    for member in zip(*parts.values(), strict=True):
        own = (part.clone() for part in member)
        yield Outputs(**dict(zip(parts, own, strict=True)))
