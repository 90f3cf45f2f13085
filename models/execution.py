"""How a model is run over edges and atoms: all at once here, in pieces in ``stream.py``.

A model states its work as functions of edges and functions of atoms; an executor decides
how many of them are handled at a time and what is kept for the backward pass.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from .edges import EdgeList

__all__ = ["EdgeView", "Executor", "NativeExecutor"]


class EdgeView(Protocol):
    """Some edges as the functions of a model see them, with sums at their destinations.

    ``source_gate`` is a factor on what the source of each edge sends, (E,), or None.
    """

    source_gate: Tensor | None


EdgeFunction = Callable[
    [EdgeView, Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, ...]
]
"""``f(view, src, dst)``: rows of the source of each edge and of each destination in, sums
per destination out; ``view`` takes rows of destinations to their edges."""


class Executor(Protocol):
    """Runs functions over all edges and all atoms."""

    source_gate: Tensor | None

    def over_edges(
        self, function: EdgeFunction, src: Sequence[Tensor], dst: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Run ``function`` on every edge.

        Args:
            function: see ``EdgeFunction``; it may not read any other tensor of edges or
                atoms.
            src: node tensors (N, ...) that it reads at the source of each edge.
            dst: node tensors (N, ...) that it reads of the destinations.

        Returns:
            Its sums, (N, ...) each.
        """

    def over_nodes(
        self, function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """Run ``function`` on every atom; tensors and results are (N, ...) each."""


class NativeExecutor:
    """Every edge and atom at once; autograd keeps what the backward pass needs."""

    def __init__(self, edges: EdgeList, view: Callable[[EdgeList, Tensor], EdgeView]):
        self.edges = edges
        self.view = view(edges, edges.vec)
        self._gate: Tensor | None = None

    @property
    def source_gate(self) -> Tensor | None:
        """Factor on what each atom sends, (N,), or None."""
        return self._gate

    @source_gate.setter
    def source_gate(self, gate: Tensor) -> None:
        self._gate = gate
        self.view.source_gate = self.edges.at_src(gate)

    def over_edges(
        self, function: EdgeFunction, src: Sequence[Tensor], dst: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """See ``Executor``."""
        at_src = [self.edges.at_src(x) for x in src]
        return function(self.view, at_src, dst)

    def over_nodes(
        self, function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """See ``Executor``."""
        return function(*tensors)
