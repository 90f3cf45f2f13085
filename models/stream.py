"""Running a model in pieces: only node tensors and edge vectors outlive a piece.

Edges go in cohorts, atoms in chunks. The forward pass of a piece keeps nothing; the
backward pass runs the piece again and differentiates it there and then. Memory grows with
atoms, not with edges times layers. First derivatives only: asking for more is an error.
"""

from collections.abc import Callable, Sequence
from itertools import compress

import torch
from torch import Tensor

from .cohorts import Cohort, CohortLayout, Cohorts
from .edges import EdgeList
from .execution import EdgeFunction, EdgeView
from .pieces import EagerRunner, EdgePiece, Runner
from .tiles import vectors_in_slots

__all__ = ["StreamExecutor"]


class StreamExecutor:
    """Cohorts of edges and chunks of atoms, one after the other.

    Args:
        edges: the edges.
        view: makes the view of a cohort from its layout and edge vectors.
        cohorts: from ``make_cohorts(edges, ...)``.
        chunk: atoms at a time.
        far: length in Å of the vectors of padding slots, beyond the cutoff.
        runner: what evaluates the pieces.
    """

    def __init__(
        self,
        edges: EdgeList,
        view: Callable[[CohortLayout, Tensor], EdgeView],
        cohorts: Cohorts,
        chunk: int,
        far: float,
        runner: Runner | None = None,
    ):
        self.cohorts, self.chunk = list(cohorts), chunk
        self.runner = runner or EagerRunner()
        self.source_gate: Tensor | None = None
        self._view = view
        self._n_atoms = edges.n_atoms
        # In the order of the slots, once for all that reads them.
        self._vec = vectors_in_slots(edges.vec, cohorts.stacked.edge, far)

    def over_edges(
        self, function: EdgeFunction, src: Sequence[Tensor], dst: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """See ``Executor``."""
        piece = EdgePiece(function, self._view, len(src), self.source_gate is not None)
        gate = [] if self.source_gate is None else [self.source_gate]
        run = (self.runner, piece, self.cohorts, self._n_atoms)
        return _OverEdges.apply(run, self._vec, *src, *gate, *dst)

    def over_nodes(
        self, function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """See ``Executor``."""
        return _OverNodes.apply((self.runner, function, self.chunk), *tensors)


class _OverEdges(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, vec, *tensors):
        ctx.run = run
        ctx.save_for_backward(vec, *tensors)
        runner, piece, cohorts, n_atoms = run
        totals = None
        for cohort, part in zip(cohorts, vec, strict=True):
            inputs = [part, *_rows(piece, cohort, tensors)]
            sums = runner.run(piece, _fixed(cohort), inputs)
            if totals is None:  # one row more, for the padding
                totals = [x.new_zeros(n_atoms + 1, *x.shape[1:]) for x in sums]
            for total, rows in zip(totals, sums, strict=True):
                cohort.add_rows(total, rows)
        return tuple(total[:-1] for total in totals)

    @staticmethod
    def backward(ctx, *grads):
        _refuse_second_derivatives()
        (runner, piece, cohorts, n_atoms), (vec, *tensors) = ctx.run, ctx.saved_tensors
        wanted = ctx.needs_input_grad[1:]
        grads = [torch.cat([g, g.new_zeros(1, *g.shape[1:])]) for g in grads]
        of_vec = torch.empty_like(vec) if wanted[0] else None
        totals = [
            x.new_zeros(n_atoms + 1, *x.shape[1:]) for x in compress(tensors, wanted[1:])
        ]
        for i, cohort in enumerate(cohorts):
            inputs = [vec[i], *_rows(piece, cohort, tensors)]
            rows = [g.index_select(0, cohort.atoms) for g in grads]
            parts = runner.differentiate(piece, _fixed(cohort), inputs, rows, wanted)
            if of_vec is not None:
                of_vec[i].copy_(parts[0])
            _add_parts(cohort, piece, totals, parts[int(wanted[0]) :], wanted[1:])
        sums = (total[:-1] for total in totals)  # the padding is added to the last rows
        return None, of_vec, *(next(sums) if w else None for w in wanted[1:])


def _add_parts(cohort: Cohort, piece: EdgePiece, totals, parts, wanted) -> None:
    """Add the gradients of a cohort to the totals of source rows and destination rows."""
    n_at_src = piece.n_at_src
    add = [cohort.add_at_src] * n_at_src + [cohort.add_rows] * (len(wanted) - n_at_src)
    for add_to, total, part in zip(compress(add, wanted), totals, parts, strict=True):
        add_to(total, part)


def _fixed(cohort: Cohort) -> tuple[Tensor, ...]:
    return cohort.tile_row, cohort.tile_ptr, cohort.real


def _rows(piece: EdgePiece, cohort: Cohort, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Rows of the sources and of the destinations of a cohort."""
    at_src = [x.index_select(0, cohort.src) for x in tensors[: piece.n_at_src]]
    at_dst = tensors[piece.n_at_src :]
    if at_dst:
        # Padding rows repeat an atom; what they give is written to the padding row.
        atoms = cohort.atoms.clamp(max=len(at_dst[0]) - 1)
        at_dst = [x.index_select(0, atoms) for x in at_dst]
    return [*at_src, *at_dst]


class _OverNodes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, *tensors):
        ctx.run = run
        ctx.save_for_backward(*tensors)
        runner, function, chunk = run
        results = [runner.run(function, (), part) for part in _chunks(tensors, chunk)]
        return tuple(torch.cat(parts) for parts in zip(*results, strict=True))

    @staticmethod
    def backward(ctx, *grads):
        _refuse_second_derivatives()
        runner, function, chunk = ctx.run
        inputs, wanted = _chunks(ctx.saved_tensors, chunk), ctx.needs_input_grad[1:]
        parts = [
            runner.differentiate(function, (), part, rows, wanted)
            for part, rows in zip(inputs, _chunks(grads, chunk), strict=True)
        ]
        sums = (torch.cat(x) for x in zip(*parts, strict=True))
        return None, *(next(sums) if w else None for w in wanted)


def _chunks(tensors: Sequence[Tensor], size: int) -> list[tuple[Tensor, ...]]:
    return list(zip(*(x.split(size) for x in tensors), strict=True))


def _refuse_second_derivatives() -> None:
    """Raise where a graph of the backward pass is asked for, which would be cut."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the streaming backward gives first derivatives only; evaluate the model "
            "without an executor for higher ones"
        )
