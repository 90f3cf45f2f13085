"""Pieces of a model: functions of tensors whose sizes do not depend on the system."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .cohorts import CohortLayout
from .execution import EdgeFunction, EdgeView

__all__ = ["EagerRunner", "EdgePiece", "Piece", "Runner"]

Piece = Callable[..., tuple[Tensor, ...]]


class Runner(Protocol):
    """Evaluates pieces. ``fixed`` are inputs that carry no derivative."""

    def run(
        self, piece: Piece, fixed: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """``piece(*fixed, *inputs)`` without recording anything."""

    def differentiate(
        self,
        piece: Piece,
        fixed: Sequence[Tensor],
        inputs: Sequence[Tensor],
        grads: Sequence[Tensor],
        wanted: Sequence[bool],
    ) -> Sequence[Tensor]:
        """Run the piece again; gradients of ``sum(results * grads)``.

        Those of the inputs for which ``wanted`` is true, in order.
        """


class EagerRunner:
    """Runs pieces as they are written, on inputs of any size."""

    def run(self, piece: Piece, fixed, inputs) -> tuple[Tensor, ...]:
        """See ``Runner``."""
        with torch.no_grad():
            return piece(*fixed, *inputs)

    def differentiate(
        self, piece: Piece, fixed, inputs, grads, wanted
    ) -> tuple[Tensor, ...]:
        """See ``Runner``."""
        with torch.enable_grad():
            inputs = [x.detach() for x in inputs]
            leaves = [
                x.requires_grad_() for x, w in zip(inputs, wanted, strict=True) if w
            ]
            pairs = zip(piece(*fixed, *inputs), grads, strict=True)
            # A result may depend on nothing that is wanted.
            pairs = [(result, grad) for result, grad in pairs if result.requires_grad]
            if not pairs:
                return tuple(torch.zeros_like(x) for x in leaves)
            results, grads = zip(*pairs, strict=True)
            return torch.autograd.grad(
                results, leaves, grads, allow_unused=True, materialize_grads=True
            )


@dataclass(frozen=True)
class EdgePiece:
    """An edge function on one cohort, as a function of plain tensors.

    Inputs: ``tile_row``, ``tile_ptr``, ``real``, ``vec`` (S, 3), then source rows
    (S, ...), the gate of the sources where there is one, and destination rows (T, ...).

    Attributes:
        function: what is done with the edges.
        view: makes the view of a cohort from its layout and edge vectors.
        n_src: number of tensors that it reads at the source.
        gated: whether the sources have a gate.
    """

    function: EdgeFunction
    view: Callable[[CohortLayout, Tensor], EdgeView]
    n_src: int
    gated: bool

    @property
    def n_at_src(self) -> int:
        """Number of inputs that are rows at the source."""
        return self.n_src + self.gated

    def __call__(self, tile_row, tile_ptr, real, vec, *tensors) -> tuple[Tensor, ...]:
        layout = CohortLayout(tile_row, tile_ptr, real)
        view = self.view(layout, vec)
        if self.gated:
            view.source_gate = tensors[self.n_src]
        src, dst = tensors[: self.n_src], tensors[self.n_at_src :]
        return self.function(view, src, dst)
