"""Running a model in pieces: only node tensors and edge vectors outlive a piece.

Edges go in cohorts, atoms in chunks. The forward pass of a piece keeps nothing; the
backward pass runs the piece again and differentiates it there and then. Memory grows with
atoms, not with edges times layers. First derivatives only: asking for more is an error.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from .cohorts import Cohort, CohortLayout
from .edges import EdgeList
from .execution import EdgeFunction, EdgeView
from .runners import Runner

__all__ = ["StreamExecutor"]


class StreamExecutor:
    """Cohorts of edges and chunks of atoms, one after the other.

    Args:
        edges: the edges.
        view: makes the view of a cohort from its layout and edge vectors.
        cohorts: from ``make_cohorts(edges, ...)``.
        chunk: atoms at a time.
        far: length in Å of the vectors of padding slots, beyond the cutoff.
        runner: runs the pieces.
    """

    def __init__(
        self,
        edges: EdgeList,
        view: Callable[[CohortLayout, Tensor], EdgeView],
        cohorts: list[Cohort],
        chunk: int,
        far: float,
        runner: Runner,
    ):
        self.cohorts, self.chunk, self.runner = cohorts, chunk, runner
        self.source_gate: Tensor | None = None
        self._view = view
        padding = edges.vec.new_tensor([[0.0, 0.0, far]])
        self._vec = torch.cat([edges.vec, padding])
        self._n_atoms = edges.n_atoms

    def over_edges(
        self, function: EdgeFunction, src: Sequence[Tensor], dst: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """See ``Executor``."""
        gate = [] if self.source_gate is None else [self.source_gate]
        piece = EdgePiece(function, self._view, len(src), bool(gate))
        sums = (piece, self.runner, self.cohorts, self._n_atoms)
        return _OverEdges.apply(sums, self._vec, *src, *gate, *dst)

    def over_nodes(
        self, function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """See ``Executor``."""
        return _OverNodes.apply((function, self.runner, self.chunk), *tensors)


class EdgePiece:
    """An edge function on one cohort, as a function of plain tensors.

    Inputs: ``tile_row``, ``real``, ``vec`` (S, 3), then source rows (S, ...), the gate of
    the sources where there is one, and destination rows (R, ...).
    """

    def __init__(self, function: EdgeFunction, view, n_src: int, gated: bool):
        self._identity = (function, view, n_src, gated)
        self.function, self.view = function, view
        self.n_src, self.gated = n_src, gated
        self.n_at_src = n_src + gated

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EdgePiece) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __call__(self, tile_row: Tensor, real: Tensor, vec: Tensor, *tensors: Tensor):
        layout = CohortLayout(tile_row, real)
        view = self.view(layout, vec)
        if self.gated:
            view.source_gate = tensors[self.n_src]
        dst = [layout.at_dst(x) for x in tensors[self.n_at_src :]]
        return self.function(view, tensors[: self.n_src], dst)


class _OverEdges(torch.autograd.Function):
    @staticmethod
    def forward(ctx, sums, vec, *tensors):
        ctx.sums = piece, runner, cohorts, n_atoms = sums
        ctx.save_for_backward(vec, *tensors)
        totals = None
        for cohort in cohorts:
            inputs = _inputs(piece, cohort, vec, tensors)
            rows = runner.run(piece, (cohort.tile_row, cohort.real), inputs)
            if totals is None:  # one row more, for the padding
                totals = [x.new_zeros(n_atoms + 1, *x.shape[1:]) for x in rows]
            for total, part in zip(totals, rows, strict=True):
                total.index_copy_(0, cohort.atoms, part)
        return tuple(total[:-1] for total in totals)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        piece, runner, cohorts, n_atoms = ctx.sums
        vec, *tensors = ctx.saved_tensors
        grads = [torch.cat([g, g.new_zeros(1, *g.shape[1:])]) for g in grads]
        of_vec = torch.zeros_like(vec)
        totals = [x.new_zeros(n_atoms + 1, *x.shape[1:]) for x in tensors]
        for cohort in cohorts:
            inputs = _inputs(piece, cohort, vec, tensors)
            rows = [g.index_select(0, cohort.atoms) for g in grads]
            fixed = (cohort.tile_row, cohort.real)
            vec_part, *parts = runner.differentiate(piece, fixed, inputs, rows)
            of_vec.index_copy_(0, cohort.edge, vec_part)
            for total, part in zip(
                totals[: piece.n_at_src], parts[: piece.n_at_src], strict=True
            ):
                cohort.add_at_src(total, part)
            for total, part in zip(
                totals[piece.n_at_src :], parts[piece.n_at_src :], strict=True
            ):
                total.index_copy_(0, cohort.atoms, part)
        of_vec[-1] = 0  # the padding slots wrote there
        return None, of_vec, *(total[:-1] for total in totals)


def _inputs(piece: EdgePiece, cohort: Cohort, vec: Tensor, tensors) -> list[Tensor]:
    """Edge vectors and node rows of a cohort."""
    at_src = [x.index_select(0, cohort.src) for x in tensors[: piece.n_at_src]]
    at_dst = tensors[piece.n_at_src :]
    if at_dst:
        # Padding rows repeat an atom; what they give is written to the padding row.
        atoms = cohort.atoms.clamp(max=len(at_dst[0]) - 1)
        at_dst = [x.index_select(0, atoms) for x in at_dst]
    return [vec.index_select(0, cohort.edge), *at_src, *at_dst]


class _OverNodes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, *tensors):
        ctx.run = function, runner, chunk = run
        ctx.save_for_backward(*tensors)
        parts = [runner.run(function, (), x) for x in _chunks(tensors, chunk, runner)]
        return _join(parts, len(tensors[0]))

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        function, runner, chunk = ctx.run
        inputs = _chunks(ctx.saved_tensors, chunk, runner)
        rows = _chunks(grads, chunk, runner)
        parts = [
            runner.differentiate(function, (), x, g)
            for x, g in zip(inputs, rows, strict=True)
        ]
        return None, *_join(parts, len(grads[0]))


def _chunks(tensors: Sequence[Tensor], size: int, runner: Runner) -> list[list[Tensor]]:
    """Split all tensors along their atoms; padded to ``size`` where the runner asks."""
    chunks = [list(part) for part in zip(*(x.split(size) for x in tensors), strict=True)]
    missing = size - len(chunks[-1][0])
    if runner.pads_chunks and missing:
        widths = ((0, 0) * (x.ndim - 1) + (0, missing) for x in chunks[-1])
        chunks[-1] = [pad(x, w) for x, w in zip(chunks[-1], widths, strict=True)]
    return chunks


def _join(parts: list[tuple[Tensor, ...]], n_atoms: int) -> tuple[Tensor, ...]:
    return tuple(torch.cat(x)[:n_atoms] for x in zip(*parts, strict=True))
