"""Sums over edges in a fixed order, and the gathers that are their adjoints.

Both directions are custom autograd functions whose backward is the other one, so that
every order of derivative exists and none of them uses a float atomic: repeats are
bit-identical on every device.
"""

from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from .requirements import Requirements

__all__ = ["gather", "largest_of_runs", "segment_sum", "sum_runs"]

_INDEX = {
    "index": "int64 (E,)",
    "order": "int64 (P,), contiguous",
    "ptr": "int64 (Q,), contiguous",
}
_VALUES, _ROWS = "float32/float64 (E, ...)", "float32/float64 (N, ...)"
_SEGMENT_SUM = Requirements("segment_sum", False, values=_VALUES, **_INDEX)
_GATHER = Requirements("gather", False, rows=_ROWS, **_INDEX)
_SUM_RUNS = Requirements(
    "sum_runs",
    False,
    flat="float32/float64 (E, W)",
    order=_INDEX["order"],
    ptr=_INDEX["ptr"],
)
_LARGEST = Requirements(
    "largest_of_runs", False, values="float32/float64 (E, W)", **_INDEX
)


def segment_sum(values: Tensor, index: Tensor, order: Tensor, ptr: Tensor) -> Tensor:
    """Sum rows of ``values`` that share an index, each sum in the order given.

    Args:
        values: rows to sum, (E, ...), float32 or float64.
        index: target row of each value, (E,), int64.
        order: permutation that sorts ``index``, (E,), int64.
        ptr: start of each target row's run in ``order`` and the end, (N + 1,), int64.

    Returns:
        (N, ...); a target row without values is zero.

    Raises:
        ValueError: the tensors do not fit.
    """
    _SEGMENT_SUM.check(values, index, order, ptr)
    return _SegmentSum.apply(values, index, order, ptr)


def gather(rows: Tensor, index: Tensor, order: Tensor, ptr: Tensor) -> Tensor:
    """Take ``rows[index]``, (E, ...); the backward pass is :func:`segment_sum`."""
    _GATHER.check(rows, index, order, ptr)
    return _Gather.apply(rows, index, order, ptr)


def largest_of_runs(values: Tensor, index: Tensor, order: Tensor, ptr: Tensor) -> Tensor:
    """Largest of the rows that share an index, without a derivative.

    Arguments as for :func:`segment_sum`, rows (E, W).

    Returns:
        (N, W); a target row without values has minus infinity.

    Raises:
        ValueError: the tensors do not fit.
    """
    _LARGEST.check(values, index, order, ptr)
    if values.is_cuda and _HAS_TRITON:
        from . import runs

        return runs.largest_of_runs(values, order, ptr)
    out = values.new_full((len(ptr) - 1, values.shape[1]), -torch.inf)
    return out.scatter_reduce(0, index[:, None].expand_as(values), values, "amax")


_HAS_TRITON = find_spec("triton") is not None


class _SegmentSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, index, order, ptr):
        ctx.save_for_backward(index, order, ptr)
        flat = values.reshape(values.shape[0], _row_size(values))
        total = _sum_runs(flat, order, ptr)
        return total.reshape(ptr.shape[0] - 1, *values.shape[1:])

    @staticmethod
    def backward(ctx, grad):
        return _Gather.apply(grad, *ctx.saved_tensors), None, None, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, index, order, ptr):
        ctx.save_for_backward(index, order, ptr)
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx, grad):
        return _SegmentSum.apply(grad, *ctx.saved_tensors), None, None, None


def sum_runs(flat: Tensor, order: Tensor, ptr: Tensor) -> Tensor:
    """Sum rows (E, W) in runs of ``order`` that start at ``ptr`` (N + 1,), -> (N, W).

    Raises:
        ValueError: the tensors do not fit.
    """
    _SUM_RUNS.check(flat, order, ptr)
    return _sum_runs(flat, order, ptr)


def _sum_runs(flat: Tensor, order: Tensor, ptr: Tensor) -> Tensor:
    if flat.is_cuda and _HAS_TRITON:
        # With few runs, embedding_bag has few threads, which wait for memory.
        from . import runs

        return runs.sum_runs(flat, order, ptr)
    # embedding_bag is the fused "gather rows and add them up" of torch: one pass over
    # the values, each run added in order by one thread.
    return embedding_bag(order, flat, ptr, mode="sum", include_last_offset=True)


def _row_size(values: Tensor) -> int:
    return torch.Size(values.shape[1:]).numel()
