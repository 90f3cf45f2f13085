"""Evaluations recorded as CUDA graphs: one launch in place of thousands."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["GraphCache", "RecordingError", "System", "map_tensors"]


class RecordingError(RuntimeError):
    """An evaluation does what cannot be recorded, such as waiting for the device."""


class System(Protocol):
    """A record of the tensors that an evaluation reads, perhaps in records and dicts."""

    @property
    def sizes(self) -> tuple:
        """Everything that a recorded evaluation depends on but its values."""


Evaluation = Callable[[Any], Sequence[Tensor]]

_KEPT = 8
"""Graphs kept at a time, the last ones used."""


class GraphCache:
    """Records an evaluation when a size comes for the second time, then replays it.

    All graphs work in one pool of memory, so only the largest counts.
    """

    def __init__(self) -> None:
        self._seen: set[tuple] = set()
        self._graphs: OrderedDict[tuple, _Recorded] = OrderedDict()
        self._pool: object | None = None
        self.n_recorded = 0

    def __call__(self, system: System, evaluate: Evaluation) -> Sequence[Tensor]:
        """Results for a system; the next call overwrites them.

        Args:
            system: what to evaluate.
            evaluate: gives the results as tensors, always in the same way; it must not
                wait for the device. It is not kept: whoever owns the graphs is freed at
                once when nobody needs it.

        Raises:
            RecordingError: the evaluation cannot be recorded.
        """
        sizes = system.sizes
        if sizes not in self._seen:
            self._seen.add(sizes)
            return evaluate(system)
        if sizes not in self._graphs:
            self._record(sizes, system, evaluate)
        self._graphs.move_to_end(sizes)
        return self._graphs[sizes].replay(system)

    def _record(self, sizes: tuple, system: System, evaluate: Evaluation) -> None:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        while len(self._graphs) >= _KEPT:
            self._graphs.popitem(last=False)
        self._graphs[sizes] = _Recorded(evaluate, system, self._pool)
        self.n_recorded += 1


class _Recorded:
    """One graph with the tensors that it reads and writes."""

    def __init__(self, evaluate: Evaluation, system: System, pool: object):
        self._system = map_tensors(torch.clone, system)
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile.
        how = {"pool": pool, "capture_error_mode": "thread_local"}
        try:
            with torch.cuda.graph(self._graph, **how):
                self._results = evaluate(self._system)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            what = str(error).strip().splitlines() or [type(error).__name__]
            raise RecordingError(
                f"evaluations of this model cannot be recorded here ({what[0]})"
            ) from error

    def replay(self, system: System) -> Sequence[Tensor]:
        map_tensors(Tensor.copy_, self._system, system)
        self._graph.replay()
        return self._results


def map_tensors(function: Callable[..., Tensor], *values: Any) -> Any:
    """A value like the first whose tensors are ``function`` of those of the values.

    Args:
        function: of as many tensors as there are values.
        *values: tensors, or dicts and dataclasses of such, all of one structure;
            anything else is taken over from the first.
    """
    first = values[0]
    if isinstance(first, Tensor):
        return function(*values)
    if isinstance(first, dict):
        return {k: map_tensors(function, *(v[k] for v in values)) for k in first}
    if is_dataclass(first):
        names = [field.name for field in fields(first)]
        parts = {
            n: map_tensors(function, *(getattr(v, n) for v in values)) for n in names
        }
        return type(first)(**parts)
    return first
