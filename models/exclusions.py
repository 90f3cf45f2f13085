"""Types and pairs of types that a model leaves out, as masks."""

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["active_pairs", "active_types"]


def active_types(ntypes: int, excluded: Iterable[int]) -> Tensor:
    """1 for types whose energy counts and 0 for the excluded, (T,), float64."""
    active = torch.ones(ntypes, dtype=torch.float64)
    active[list(excluded)] = 0
    return active


def active_pairs(ntypes: int, excluded: Iterable[tuple[int, int]]) -> Tensor:
    """Whether two types form edges, whatever their order, (T, T), bool."""
    active = torch.ones(ntypes, ntypes, dtype=torch.bool)
    for a, b in excluded:
        active[a, b] = active[b, a] = False
    return active
