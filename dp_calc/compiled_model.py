"""A model whose pieces are compiled, and on CUDA whole evaluations recorded."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from .compile_cache import open_cache
from .compiled import CompiledRunner, CompileError
from .evaluation import Outputs, evaluate_model
from .graphs import GraphCache
from .models import EdgeList, StreamExecutor, make_cohorts
from .models.cohorts import TILE
from .padding import PaddedSystem, pad_system
from .settings import Settings

__all__ = ["CompileError", "CompiledModel", "make_compiled", "why_not_compiled"]

_CHUNKS = {"cuda": (128, 512), "cpu": (32, 32)}
"""Atoms at a time, in small systems and in those that fill the larger chunk."""

_CPU_SLOTS = 1024
"""Slots of a cohort on a CPU, whose caches hold no more."""


class CompiledModel:
    """Evaluates structures of any size with code compiled once.

    Edges are padded to whole cohorts and atoms to whole chunks, so no piece ever changes
    its size. Nothing that an evaluation makes outlives it but node tensors.

    Args:
        model: a model that ``why_not_compiled`` has nothing against.
        settings: how to run it.

    Attributes:
        runner: what evaluates the pieces.
        graphs: recorded evaluations; None except on CUDA.
    """

    def __init__(self, model: nn.Module, settings: Settings):
        self.model, self.settings = model, settings
        self.runner = CompiledRunner(open_cache(model), model)
        self._chunks = _CHUNKS[model.device.type]
        on_cuda = model.device.type == "cuda"
        slots = settings.cohort_edges
        self.slots = slots if on_cuda else min(slots, _CPU_SLOTS)
        self.graphs = GraphCache() if on_cuda else None
        self._far = 2 * model.rcut

    def holds(self, edges: EdgeList) -> bool:
        """Whether the edges of each atom fit into a cohort."""
        if not edges.n_atoms:
            return True
        return int(edges.row_ptr.diff().max()) <= self.slots // TILE * TILE

    def evaluate(
        self, types: Tensor, edges: EdgeList, conditions: Mapping[str, Tensor]
    ) -> Outputs:
        """Compute energies, forces and virials; see ``evaluate_model``.

        Raises:
            CompileError: there is no compiled code, or it cannot be trusted.
        """
        slots = self._slots(edges.n_edges)
        cohorts = make_cohorts(edges, slots, self.model.dtype, fixed=True)
        chunk = self._chunk(len(types))
        system = pad_system(
            types, edges, cohorts, conditions, chunk, self._far, self.graphs is not None
        )
        if self.graphs is None:
            results = self._evaluate(system)
        else:
            results = self.graphs(system, self._evaluate)
        return Outputs(*(x[: len(types)].clone() for x in results))

    def _slots(self, n_edges: int) -> int:
        """Twice the size where one cohort would not do: fewer launches on CUDA."""
        on_cuda = self.graphs is not None
        return 2 * self.slots if on_cuda and n_edges > self.slots else self.slots

    def _chunk(self, n_atoms: int) -> int:
        small, large = self._chunks
        return large if n_atoms >= large else small

    def _evaluate(self, system: PaddedSystem) -> Sequence[Tensor]:
        outputs = evaluate_model(
            self.model,
            system.types,
            system.edges,
            system.conditions,
            lambda edges, view: StreamExecutor(
                edges, view, system.cohorts, system.chunk, self._far, self.runner
            ),
        )
        return [x for x in vars(outputs).values() if x is not None]


def make_compiled(model: nn.Module, settings: Settings) -> CompiledModel | None:
    """The compiled model where the settings want one.

    Raises:
        ValueError: one is asked for and cannot be had.
    """
    if settings.compile is False:
        return None
    reason = why_not_compiled(model, settings)
    if reason is None:
        return CompiledModel(model, settings)
    if settings.compile:
        raise ValueError(f"compile=True cannot be had: {reason}; leave it out")
    return None


def why_not_compiled(model: nn.Module, settings: Settings) -> str | None:
    """Reason for which a model is not compiled by default, or None."""
    if settings.compile is None and model.device.type != "cuda":
        return "it is on only for CUDA devices unless asked for"
    if settings.backward in ("native", "cohort"):
        return f'backward="{settings.backward}" keeps all edges, and compiled code none'
    if not getattr(model, "keeps_edges", False):
        return f"it is not offered for this kind of {model.architecture} model"
    return None
