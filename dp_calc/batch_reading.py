"""Many structures read and searched for edges, each ready to become part of a batch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from ase import Atoms
from torch import Tensor

from .arithmetic import plain_arithmetic
from .batch_edges import Edges, SmallSearch
from .models import Potential
from .reading import Reader
from .structure import Structure

__all__ = ["Broken", "Failure", "Member", "MemberReader"]

_WINDOW = 2**20
"""Candidates for edges that are looked at together."""

_MOST_WAITING = 1024
"""Structures that may wait for the search, so that results keep coming."""

_ATOM = 24
"""An atom takes about as much memory as so many edges."""


@dataclass(frozen=True)
class Member:
    """One structure, ready to become part of a batch.

    Attributes:
        types: index into the model's ``type_map``, (n,), int64, on the CPU.
        edges: on the model's device.
        conditions: further inputs by name, on the CPU, (n, width) each.
        box: cell and periodicity without atoms; the caller may have changed the
            structure by the time when its results are there.
    """

    types: Tensor
    edges: Edges
    conditions: dict[str, Tensor]
    box: Atoms

    @property
    def load(self) -> int:
        """Memory it will take, in edges."""
        return max(len(self.edges[0]), _ATOM * len(self.types))


@dataclass(frozen=True)
class Failure:
    """Stands for a structure that cannot be evaluated.

    Attributes:
        error: kind of the error and its message.
    """

    error: str
    load: int = _ATOM

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        """Describe an error in one line.

        Raises:
            AcceleratorError: it is one, of a device in disorder and not of a structure.
        """
        if isinstance(error, torch.AcceleratorError):
            raise error
        text = " ".join(str(error).split())
        name = type(error).__name__
        return cls(f"{name}: {text}" if text else name)


@dataclass(frozen=True)
class Broken:
    """Stands where an iterable of structures raised an exception of its own."""

    error: Exception


@dataclass(frozen=True)
class _Waiting:
    """A structure without its edges."""

    structure: Structure
    conditions: dict[str, Tensor]
    box: Atoms

    def complete(self, edges: Edges) -> Member:
        types = self.structure.types
        # What a model reads of a whole system becomes the same for all of its atoms.
        conditions = {k: v.expand(len(types), -1) for k, v in self.conditions.items()}
        return Member(types, edges, conditions, self.box)


class MemberReader:
    """Makes members of batches from structures, in their order.

    Args:
        reader: checks structures for the model; also searches in large ones, or in all
            if the caller chose how to search.
        model: what they are read for.
    """

    def __init__(self, reader: Reader, model: Potential):
        self._reader = reader
        self._device = model.device
        self._search = SmallSearch(model.rcut, model.shortest_distance, model.device)

    def read(self, structures: Iterable[Atoms]) -> Iterator[Member | Failure | Broken]:
        """Read structures lazily, some ahead of what was asked for."""
        window, n_candidates = [], 0
        for atoms in _until_broken(structures):
            found, n = (atoms, 0) if isinstance(atoms, Broken) else self._begin(atoms)
            window.append(found)
            n_candidates += n
            if n_candidates >= _WINDOW or len(window) >= _MOST_WAITING:
                yield from self._finish(window)
                window, n_candidates = [], 0
        yield from self._finish(window)

    def _begin(self, atoms: Atoms) -> tuple[_Waiting | Member | Failure, int]:
        """Check a structure, and find its edges unless it waits: with how many to do."""
        try:
            with plain_arithmetic(self._device):
                return self._check(atoms)
        except Exception as error:  # whatever is wrong with one is no matter of others
            return Failure.of(error), 0

    def _check(self, atoms: Atoms) -> tuple[_Waiting | Member, int]:
        checked = self._reader.check(atoms)
        waiting = _Waiting(*checked, Atoms(cell=atoms.cell, pbc=atoms.pbc))
        if not self._reader.search_is_given:
            n_candidates = self._search.candidates(waiting.structure)
            if n_candidates is not None:
                return waiting, n_candidates
        return waiting.complete(self._edges(waiting)), 0

    def _finish(self, window: list) -> list[Member | Failure | Broken]:
        """Search for the edges of those that wait for it."""
        waiting = [x for x in window if isinstance(x, _Waiting)]
        if not waiting:
            return window
        with plain_arithmetic(self._device):
            edges = iter(self._search_together([x.structure for x in waiting]))
            return [
                self._complete(x, next(edges)) if isinstance(x, _Waiting) else x
                for x in window
            ]

    def _search_together(self, structures: list[Structure]) -> list[Edges | None]:
        try:
            return self._search.find(structures)
        except torch.OutOfMemoryError:
            return [None] * len(structures)

    def _complete(self, waiting: _Waiting, edges: Edges | None) -> Member | Failure:
        try:
            # Where atoms are too close, the search for one structure says which.
            return waiting.complete(self._edges(waiting) if edges is None else edges)
        except Exception as error:
            return Failure.of(error)

    def _edges(self, waiting: _Waiting) -> Edges:
        edges = self._reader.find_edges(waiting.structure)
        return edges.src, edges.dst, edges.vec


def _until_broken(structures: Iterable[Atoms]) -> Iterator[Atoms | Broken]:
    """The structures; an exception of the iterable becomes the last item."""
    try:
        yield from structures
    except Exception as error:
        yield Broken(error)
