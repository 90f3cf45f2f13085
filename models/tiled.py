"""Every edge at once, in tiles: what kernels need that work on tiles of edges."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..kernels.segment import gather
from .cohorts import TILE, CohortLayout, far_away, slots_of_edges
from .edges import EdgeList
from .execution import EdgeFunction, EdgeView

__all__ = ["TiledExecutor"]


class TiledExecutor:
    """All edges and atoms at once; autograd keeps what the backward pass needs.

    The edges of an atom fill tiles of ``TILE`` slots, the last one padded.

    Args:
        edges: the edges.
        view: makes the view of the slots from their layout and edge vectors.
        dtype: precision of the model.
        far: length in Å of the vectors of padding slots, beyond the cutoff.
    """

    def __init__(
        self,
        edges: EdgeList,
        view: Callable[[CohortLayout, Tensor], EdgeView],
        dtype: torch.dtype,
        far: float,
    ):
        tiles = -(-edges.row_ptr.diff() // TILE)
        tile_ptr = torch.cat([tiles.new_zeros(1), tiles.cumsum(0)])
        atoms = torch.arange(edges.n_atoms, device=tiles.device)
        tile_row = atoms.repeat_interleave(tiles)
        slot = slots_of_edges(edges, tile_ptr)
        edge = slot.new_full((len(tile_row) * TILE,), edges.n_edges)
        edge[slot] = torch.arange(edges.n_edges, device=slot.device)
        self._slots_by_source = slot[edges.by_source]
        self._source_ptr = edges.source_ptr
        self._src = torch.cat([edges.src, edges.src.new_zeros(1)])[edge]
        real = (edge < edges.n_edges).to(dtype)
        self._layout = CohortLayout(tile_row, tile_ptr, real)
        vec = torch.cat([edges.vec, far_away(edges.vec, far)])
        self._view = view(self._layout, vec[edge])
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
        return gather(rows, self._src, self._slots_by_source, self._source_ptr)
