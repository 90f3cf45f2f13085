"""What every model is to those who use it."""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from .inputs import InputSpec

__all__ = ["ModelSource", "Potential"]


@dataclass(frozen=True)
class ModelSource:
    """Where a model came from and what it is, for people to read.

    Attributes:
        path: the file.
        sha256: its checksum.
        architecture: name of the model family.
        head: branch that was loaded.
        branches: all branches of the file.
        version: version of the descriptor's format.
        n_parameters: trained numbers in the model.
        options: descriptor options as the file states them.
        params: all options of the branch, as they are stored.
        observed_types: elements that were in the training data, if the file says so.
    """

    path: Path
    sha256: str
    architecture: str
    head: str
    branches: tuple[str, ...]
    version: float
    n_parameters: int
    options: dict
    params: dict
    observed_types: tuple[str, ...] | None


class Potential(nn.Module):
    """Base of all models: ``model(types, edges, conditions)`` gives atomic energies.

    Attributes:
        architecture: name of the model family.
        version: version of the descriptor's format; committees have none.
        type_map: element symbol of each type index.
        rcut: cutoff in Å.
        shortest_distance: pairs closer than this (Å) are outside the model's domain.
        source: where it was loaded from; committees have none.
    """

    architecture: str
    version: float
    type_map: tuple[str, ...]
    rcut: float
    shortest_distance: float
    source: ModelSource

    @property
    @abstractmethod
    def inputs(self) -> tuple[InputSpec, ...]:
        """What the model reads beside types and edges."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Precision of the weights."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the weights are and the inputs must be."""
