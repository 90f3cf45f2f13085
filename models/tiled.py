"""Every edge at once, in tiles: what kernels need that work on tiles of edges."""

from collections.abc import Callable, Sequence

from torch import Tensor

from ..kernels.segment import gather
from .cohorts import CohortLayout
from .execution import EdgeFunction, EdgeView
from .tiles import Tiles, vectors_in_slots

__all__ = ["TiledExecutor"]


class TiledExecutor:
    """All edges and atoms at once; autograd keeps what the backward pass needs.

    Args:
        vec: edge vectors in Å, (E, 3).
        view: makes the view of the slots from their layout and edge vectors.
        tiles: from ``make_tiles``.
        far: length in Å of the vectors of padding slots, beyond the cutoff.
    """

    def __init__(
        self,
        vec: Tensor,
        view: Callable[[CohortLayout, Tensor], EdgeView],
        tiles: Tiles,
        far: float,
    ):
        self._tiles = tiles
        layout = CohortLayout(tiles.tile_row, tiles.tile_ptr, tiles.real)
        self._view = view(layout, vectors_in_slots(vec, tiles.edge, far))
        self._gate: Tensor | None = None

    @property
    def source_gate(self) -> Tensor | None:
        """Factor on what each atom sends, (N,), or None."""
        return self._gate

    @source_gate.setter
    def source_gate(self, gate: Tensor) -> None:
        self._gate = gate
        self._view.source_gate = self._at_src(gate)

    def over_edges(
        self, function: EdgeFunction, src: Sequence[Tensor], dst: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """See ``Executor``."""
        return function(self._view, [self._at_src(x) for x in src], dst)

    def over_nodes(
        self, function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """See ``Executor``."""
        return function(*tensors)

    def _at_src(self, rows: Tensor) -> Tensor:
        """Rows (N, ...) -> slots (S, ...); the padding gives nothing back."""
        tiles = self._tiles
        return gather(rows, tiles.src, tiles.by_source, tiles.source_ptr)
