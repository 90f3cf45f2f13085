"""Directed edges of a neighbour graph: the contract between every layer."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ..kernels.segment import gather, segment_sum

__all__ = ["EdgeList"]


@dataclass(frozen=True)
class EdgeList:
    """Directed edges ``src -> dst``, sorted by destination, then source, then image.

    Every pair within the cutoff appears twice, once in each direction; images of one atom
    are separate edges and an atom's own images are edges too.

    Attributes:
        src: atom that sends the message (the neighbour), (E,), int64.
        dst: atom that receives it (the centre), (E,), int64, non-decreasing.
        vec: ``r_src + image - r_dst`` in Å, (E, 3), float64.
        row_ptr: first edge of each destination and the end, (N + 1,), int64.
        by_source: stable permutation that sorts ``src``, (E,), int64.
        source_ptr: start of each source's run in ``by_source`` and the end, (N + 1,).
    """

    src: Tensor
    dst: Tensor
    vec: Tensor
    row_ptr: Tensor
    by_source: Tensor
    source_ptr: Tensor

    @classmethod
    def from_sorted(
        cls, src: Tensor, dst: Tensor, vec: Tensor, n_atoms: int
    ) -> "EdgeList":
        """Complete edges that are already sorted by destination, source and image."""
        by_source = torch.argsort(src, stable=True)
        return cls(src, dst, vec, _ptr(dst, n_atoms), by_source, _ptr(src, n_atoms))

    @property
    def n_atoms(self) -> int:
        """Number of atoms N, those without an edge included."""
        return self.row_ptr.shape[0] - 1

    @property
    def n_edges(self) -> int:
        """Number of directed edges E."""
        return self.src.shape[0]

    def at_src(self, x: Tensor) -> Tensor:
        """Atom rows at each edge's source, (N, ...) -> (E, ...)."""
        return gather(x, self.src, self.by_source, self.source_ptr)

    def at_dst(self, x: Tensor) -> Tensor:
        """Atom rows at each edge's destination, (N, ...) -> (E, ...)."""
        return gather(x, self.dst, self._in_order, self.row_ptr)

    def sum_at_src(self, values: Tensor) -> Tensor:
        """Sum over the edges that leave each atom, (E, ...) -> (N, ...)."""
        return segment_sum(values, self.src, self.by_source, self.source_ptr)

    def sum_at_dst(self, values: Tensor) -> Tensor:
        """Sum over the edges that arrive at each atom, (E, ...) -> (N, ...)."""
        return segment_sum(values, self.dst, self._in_order, self.row_ptr)

    def sum_products_at_dst(self, left: Tensor, right: Tensor) -> Tensor:
        """Sum ``left.T @ right`` of arriving edges, (E, k, a), (E, k, b) -> (N, a, b)."""
        return self.sum_at_dst(left.mT @ right)

    def largest_at_dst(self, values: Tensor, start: Tensor) -> Tensor:
        """Largest value of the arriving edges and ``start``, (E, K), (K,) -> (N, K).

        For shifts of exponents: no derivative passes through it.
        """
        index = self.dst[:, None].expand_as(values)
        start = start.detach().expand(self.n_atoms, -1)
        return start.scatter_reduce(0, index, values.detach(), "amax", include_self=True)

    def with_vec(self, vec: Tensor) -> "EdgeList":
        """The same edges with other vectors, e.g. leaves that require gradients."""
        return replace(self, vec=vec)

    def select(self, keep: Tensor) -> "EdgeList":
        """Only the edges where ``keep``, (E,) bool, is true."""
        kept = keep.nonzero().squeeze(1)
        # What was sorted stays sorted, so that counting does instead of a new sort.
        keep_by_source = keep[self.by_source]
        before, before_by_source = _count_before(keep), _count_before(keep_by_source)
        return EdgeList(
            src=self.src[kept],
            dst=self.dst[kept],
            vec=self.vec.index_select(0, kept),
            row_ptr=before[self.row_ptr],
            by_source=before[self.by_source[keep_by_source]],
            source_ptr=before_by_source[self.source_ptr],
        )

    @cached_property
    def _in_order(self) -> Tensor:
        return torch.arange(self.n_edges, device=self.src.device)


def _ptr(index: Tensor, n_rows: int) -> Tensor:
    counts = torch.bincount(index, minlength=n_rows)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _count_before(keep: Tensor) -> Tensor:
    """How many are kept before each place and in all, (E,) bool -> (E + 1,)."""
    counts = keep.cumsum(0)
    return torch.cat([counts.new_zeros(1), counts])
