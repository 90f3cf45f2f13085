"""Many structures at once, packed into batches that fit into memory."""

from collections.abc import Iterable, Iterator, Sequence, Sized
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from ase import Atoms
from torch import nn
from tqdm import tqdm

from .arithmetic import plain_arithmetic
from .batch_packing import default_max_edges, evaluate_members
from .batch_reading import Broken, Failure, Member, MemberReader
from .calculator import DP
from .engine import Outputs
from .models import Potential
from .processes import refuse_fork
from .results import collect_results, stress_from_virial

__all__ = ["Batches", "evaluate", "ievaluate"]

Results = dict[str, Any]
Model = str | Path | nn.Module | Sequence[str | Path | nn.Module]


def evaluate(
    structures: Iterable[Atoms],
    model_or_calc: DP | Model,
    *,
    properties: Sequence[str] | None = None,
    max_edges: int | None = None,
    progress: bool = True,
) -> list[Results]:
    """Evaluate many structures, much faster than one after the other.

    Structures of any kind are packed together into batches: crystals, slabs, molecules
    and single atoms, each with its own charge, spins and parameters. One evaluation
    serves a batch. Results agree with those of single evaluations to rounding, which
    depends on what else is in a batch: within 1e-12 of the largest entry in float64, and
    1e-5 in float32. The same structures in the same order give the same bits.

    Args:
        structures: ``Atoms`` in any iterable; a generator is read as batches need it.
            Nothing of them changes, and calculators they have play no part.
        model_or_calc: a calculator, whose own results stay; or what it can be made from:
            path of a checkpoint, name of a released one, a model from ``load_model``, or
            several of them for a committee.
        properties: names of the results to give, those of :class:`~dp_calc.DP`; None is
            all that ``DP.results`` has, so all but ``stresses``. One evaluation computes
            everything either way, but fewer results take less memory.
        max_edges: most edges in a batch, where an edge is a neighbour of an atom within
            the cutoff. A structure with more is a batch of its own. None: what is fast
            and fills a small part of the device's memory.
        progress: whether to show a progress bar on stderr.

    Returns:
        For each structure, in their order, a dict with keys, types and units of
        ``DP.results``; ``stress`` and ``stresses`` are missing where there are none. A
        structure that cannot be evaluated, or has a result that is not finite, gives a
        dict with the one key ``"error"``: the kind of the error, a colon, and a sentence,
        like ``"ValueError: the structure has no atoms"``.

    Raises:
        TypeError: ``structures`` are no iterable of structures, or ``model_or_calc`` is
            no model.
        ValueError: an argument cannot be honoured; the message says why. An exception of
            the iterable itself passes through too; :func:`ievaluate` then has given the
            results of all structures before.
    """
    # The bar first: without a generator around it, wrong arguments are refused at once.
    results = ievaluate(
        structures, model_or_calc, properties=properties, max_edges=max_edges
    )
    total = len(structures) if isinstance(structures, Sized) else None
    return list(tqdm(results, total=total, unit="structure", disable=not progress))


def ievaluate(
    structures: Iterable[Atoms],
    model_or_calc: DP | Model,
    *,
    properties: Sequence[str] | None = None,
    max_edges: int | None = None,
) -> Iterator[Results]:
    """Like :func:`evaluate`, giving results as they are made, a batch at a time."""
    batches = Batches(model_or_calc, properties, max_edges)
    _refuse_other_than_structures(structures)
    return (results for batch in batches.run(structures) for results in batch)


class Batches:
    """Evaluates structures batch by batch.

    A batch holds as many structures as fit from its first one on, so that it depends on
    nothing before: work that is taken up again at the first structure of a batch goes on
    with the same batches and the same numbers.

    Args:
        model_or_calc: see :func:`evaluate`.
        properties: see :func:`evaluate`.
        max_edges: see :func:`evaluate`; halved if a batch did not fit into memory.
    """

    def __init__(
        self,
        model_or_calc: DP | Model,
        properties: Sequence[str] | None = None,
        max_edges: int | None = None,
    ):
        if not isinstance(model_or_calc, DP):
            model_or_calc = DP(model_or_calc)
        self.calc = model_or_calc
        self.properties = _checked_properties(properties, self.calc)
        self.max_edges = _checked_max_edges(max_edges, self.calc.model)
        self._reader = MemberReader(self.calc._reader, self.calc.model)

    def run(self, structures: Iterable[Atoms]) -> Iterator[list[Results]]:
        """Results of each batch, in the order of the structures.

        Raises:
            Exception: whatever the iterable raises, after the results of all structures
                that it gave.
        """
        refuse_fork(self.calc.device)
        batch: list[Member | Failure] = []
        load = 0
        for member in self._reader.read(structures):
            if batch and (isinstance(member, Broken) or not self._fits(load, member)):
                yield self._results(batch)
                batch, load = [], 0
            if isinstance(member, Broken):
                raise member.error
            batch.append(member)
            load += member.load
        if batch:
            yield self._results(batch)

    def _fits(self, load: int, member: Member | Failure) -> bool:
        return load + member.load <= self.max_edges

    def _results(self, batch: Sequence[Member | Failure]) -> list[Results]:
        """Results of a batch; those with the same kinds of conditions go together."""
        results: list[Results] = [{"error": getattr(m, "error", "")} for m in batch]
        kinds: dict[frozenset[str], dict[int, Member]] = {}
        for i, member in enumerate(batch):
            if isinstance(member, Member):
                kinds.setdefault(frozenset(member.conditions), {})[i] = member
        for members in kinds.values():
            made = self._evaluate(list(members.values()))
            for i, result in zip(members, made, strict=True):
                results[i] = result
        return results

    def _evaluate(self, members: Sequence[Member]) -> list[Results]:
        """One evaluation for all, or for each half if that fails."""
        try:
            return self._evaluate_together(members)
        except Exception as error:
            if len(members) == 1:
                return [{"error": Failure.of(error).error}]
            if _is_out_of_memory(error):
                self.max_edges = max(1, sum(m.load for m in members) // 2)
        # Not above, where the error still holds the tensors of the evaluation.
        half = len(members) // 2
        return [*self._evaluate(members[:half]), *self._evaluate(members[half:])]

    def _evaluate_together(self, members: Sequence[Member]) -> list[Results]:
        calc = self.calc
        with calc._lock, plain_arithmetic(calc.device):
            parts = evaluate_members(calc._engine, members, calc.device)
        return [self._collect(*pair) for pair in zip(parts, members, strict=True)]

    def _collect(self, outputs: Outputs, member: Member) -> Results:
        """Results of one structure, those that are wanted."""
        results = collect_results(outputs, member.box)
        if self.properties is None:
            return results
        if "stresses" in self.properties and "stress" in results:
            atomic_virials = outputs.atomic_virials.numpy()
            results["stresses"] = stress_from_virial(atomic_virials, member.box)
        return {name: results[name] for name in self.properties if name in results}


def _is_out_of_memory(error: Exception) -> bool:
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or "DefaultCPUAllocator" in str(error)


def _checked_max_edges(max_edges: int | None, model: Potential) -> int:
    if max_edges is None:
        return default_max_edges(model)
    whole = isinstance(max_edges, Integral) and not isinstance(max_edges, bool)
    if not whole or max_edges < 1:
        raise ValueError(f"max_edges must be a positive whole number, not {max_edges!r}")
    return int(max_edges)


def _checked_properties(
    properties: Sequence[str] | None, calc: DP
) -> tuple[str, ...] | None:
    if properties is None:
        return None
    if not isinstance(properties, Iterable):
        raise TypeError(
            f"properties must be a sequence of names, such as ['energy', 'forces'], not "
            f"{properties!r}"
        )
    names = (properties,) if isinstance(properties, str) else tuple(properties)
    unknown = [repr(n) for n in names if n not in calc.implemented_properties]
    if unknown or not names:
        raise ValueError(
            f"properties must be some of {', '.join(calc.implemented_properties)}, "
            f"not {', '.join(unknown) or 'none'}"
        )
    return names


def _refuse_other_than_structures(structures: object) -> None:
    if isinstance(structures, Atoms):
        raise TypeError("structures must be several; put the one you have into a list")
    if isinstance(structures, str | Path):
        raise TypeError(
            "structures must be an iterable of ase.Atoms, not the name of a file; read "
            f'it first: ase.io.iread("{structures}")'
        )
    if not isinstance(structures, Iterable):
        raise TypeError(
            "structures must be an iterable of ase.Atoms, not a "
            f"{type(structures).__name__}"
        )
