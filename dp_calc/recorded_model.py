"""A model whose evaluations are recorded whole as CUDA graphs, all activations kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .evaluation import Outputs, evaluate_model
from .fusing import why_no_kernels
from .graphs import GraphCache
from .kernels.launch import compiled_ahead
from .models import DPA4Model, EdgeList, TiledExecutor, make_tiles
from .models.tiles import Tiles
from .padding import pad_condition, pad_edges, pad_ptr, rounded_size
from .settings import Settings

__all__ = ["RecordedModel", "make_recorded", "may_record"]

_ATOMS = 32
_TILES = 64
"""Atoms and tiles of edges come in multiples of these."""


@dataclass(frozen=True)
class TiledSystem:
    """A structure with its padding, as ``PaddedSystem``.

    Attributes:
        types: types of the atoms, the last ones padding, (N,).
        edges: edges of the atoms, the last ones padding.
        tiles: the real edges; their indices mean those of ``edges``.
        conditions: further inputs by name.
    """

    types: Tensor
    edges: EdgeList
    tiles: Tiles
    conditions: dict[str, Tensor]

    @property
    def sizes(self) -> tuple:
        """Everything that a recorded evaluation depends on but its values."""
        conditions = sorted((name, x.shape) for name, x in self.conditions.items())
        return len(self.types), len(self.tiles.tile_row), tuple(conditions)


class RecordedModel:
    """Evaluates structures with everything kept for the backward pass.

    Nothing is compiled but the kernels: a graph takes all launches at once.

    Args:
        model: a model on kernels, see ``models.dpa4.fused``.

    Attributes:
        graphs: the recorded evaluations.
    """

    def __init__(self, model: DPA4Model):
        self.model = model
        self.graphs = GraphCache()
        self._far = 2 * model.rcut
        self._compiled = False

    def evaluate(
        self, types: Tensor, edges: EdgeList, conditions: Mapping[str, Tensor]
    ) -> Outputs:
        """Compute energies, forces and virials; see ``evaluate_model``."""
        system = self._padded(types, edges, conditions)
        if not self._compiled:  # whatever the size, no launch is left out: see padding
            with compiled_ahead():
                self._evaluate(system)
            self._compiled = True
        results = self.graphs(system, self._evaluate)
        return Outputs(*(x[: len(types)].clone() for x in results))

    def _padded(
        self, types: Tensor, edges: EdgeList, conditions: Mapping[str, Tensor]
    ) -> TiledSystem:
        n_atoms = _ATOMS * rounded_size(-(-len(types) // _ATOMS))
        more = n_atoms - len(types)
        tiles = make_tiles(
            edges, self.model.dtype, lambda n: _TILES * rounded_size(-(-n // _TILES))
        )
        n_slots = len(tiles.edge)
        fields = vars(tiles) | {
            "edge": torch.where(tiles.edge == edges.n_edges, n_slots, tiles.edge),
            "tile_ptr": pad_ptr(tiles.tile_ptr, more),
            "source_ptr": pad_ptr(tiles.source_ptr, more),
        }
        return TiledSystem(
            F.pad(types, (0, more)),
            pad_edges(edges, n_atoms, n_slots, self._far),
            Tiles(**fields),
            {name: pad_condition(x, len(types), more) for name, x in conditions.items()},
        )

    def _evaluate(self, system: TiledSystem) -> Sequence[Tensor]:
        outputs = evaluate_model(
            self.model,
            system.types,
            system.edges,
            system.conditions,
            lambda edges, view: TiledExecutor(edges.vec, view, system.tiles, self._far),
        )
        return [x for x in vars(outputs).values() if x is not None]


def make_recorded(model: nn.Module, settings: Settings) -> RecordedModel | None:
    """The recorded model where settings and model allow one.

    Args:
        model: as the engine runs it, on kernels or not.
        settings: how to run it.
    """
    on_kernels = isinstance(model, DPA4Model) and model.kernel_options is not None
    return RecordedModel(model) if on_kernels and may_record(model, settings) else None


def may_record(model: nn.Module, settings: Settings) -> bool:
    """Whether evaluations of a model are recorded if it runs on kernels."""
    wanted = settings.compile is None and settings.backward != "stream"
    runs = model.device.type == "cuda" and why_no_kernels(model, settings) is None
    return wanted and runs and getattr(model, "keeps_edges", False)
