"""Sums and maxima of runs on Triton, on a CUDA device or interpreted."""

from itertools import pairwise

import pytest
import torch
from dp_calc.kernels.runs import largest_of_runs, sum_runs
from torch.fx.experimental.proxy_tensor import make_fx

from .poison import poisoned_new_tensors, surrounded

pytestmark = pytest.mark.gpu

ROUNDING = {torch.float32: 2e-6, torch.float64: 4e-15}
WIDTHS = [1, 17, 127, 128, 129, 300, 512, 513, 1100]
LENGTHS = [0, 0, 7, 8, 9, 1, 0, 40, 0]  # of the runs


def random_runs(width, dtype=torch.float64, lengths=LENGTHS, device="cpu"):
    generator = torch.Generator().manual_seed(width)
    n = sum(lengths)
    values = torch.randn(n + 3, width, generator=generator, dtype=torch.float64)
    order = torch.randperm(n + 3, generator=generator)[:n]  # some rows are in no run
    ptr = torch.tensor([0, *lengths]).cumsum(0)
    return values.to(dtype).to(device), order.to(device), ptr.to(device)


def expected_sums(values, order, ptr):
    runs = [order[a:b] for a, b in pairwise(ptr)]
    return torch.stack([values[run].double().sum(0) for run in runs])


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("width", WIDTHS)
def test_sums(width, dtype, device):
    values, order, ptr = random_runs(width, dtype, device=device)
    result = sum_runs(values, order, ptr)
    assert result.dtype == dtype
    assert not result[ptr.diff() == 0].any()
    error = (result - expected_sums(values, order, ptr)).abs().max()
    assert error <= ROUNDING[dtype] * values.abs().max()


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("width", [1, 129, 513])
def test_largest(width, dtype, device):
    values, order, ptr = random_runs(width, dtype, device=device)
    result = largest_of_runs(values, order, ptr)
    for row, (start, end) in zip(result, pairwise(ptr), strict=True):
        run = values[order[start:end]]
        assert torch.equal(
            row, run.amax(0) if len(run) else row.new_full((width,), -torch.inf)
        )


@pytest.mark.parametrize("reduce", [sum_runs, largest_of_runs])
@pytest.mark.parametrize(("lengths", "width"), [([], 5), ([0, 0], 5), ([3], 0)])
def test_nothing_to_add_up(lengths, width, reduce, device):
    values, order, ptr = random_runs(width, lengths=lengths, device=device)
    result = reduce(values, order, ptr)
    assert result.shape == (len(lengths), width)
    nothing = 0.0 if reduce is sum_runs else -torch.inf
    assert (result == nothing).all()


def test_cancelling_numbers_are_added_in_one_order(device):
    values, order, ptr = random_runs(64, torch.float32, device=device)
    values = values * torch.logspace(-6, 6, len(values), device=device)[:, None]
    first = sum_runs(values, order, ptr)
    for _ in range(9):
        assert torch.equal(sum_runs(values, order, ptr), first)


@pytest.mark.parametrize("reduce", [sum_runs, largest_of_runs])
def test_poisoned_surroundings_and_rows_in_no_run(reduce, device):
    values, order, ptr = random_runs(129, torch.float32, device=device)
    expected = reduce(values, order, ptr)
    before = [x.clone() for x in (values, order, ptr)]
    unused = torch.ones(len(values), dtype=torch.bool, device=device)
    unused[order] = False
    poisoned = values.clone()
    poisoned[unused] = torch.nan
    with poisoned_new_tensors():
        result = reduce(surrounded(poisoned), order, ptr)
    assert torch.equal(result, expected)
    assert all(map(torch.equal, (values, order, ptr), before))


def test_strided_values(device):
    values, order, ptr = random_runs(34, device=device)
    expected = sum_runs(values[:, ::2].contiguous(), order, ptr)
    assert torch.equal(sum_runs(values[:, ::2], order, ptr), expected)
    turned = values.T.contiguous().T
    assert torch.equal(sum_runs(turned, order, ptr), sum_runs(values, order, ptr))


@pytest.mark.parametrize("reduce", [sum_runs, largest_of_runs])
def test_operators_are_registered_completely(reduce, device):
    torch.library.opcheck(reduce, random_runs(17, device=device))
    values, order, ptr = random_runs(17, device=device)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        reduce(values.requires_grad_(), order, ptr).sum().backward()


def test_a_trace_for_few_rows_runs_any_number(device):
    trace = make_fx(sum_runs, tracing_mode="symbolic")
    graph = trace(*random_runs(17, lengths=[2, 3], device=device))
    assert any("sum_runs" in str(node.target) for node in graph.graph.nodes)
    other = random_runs(17, device=device)
    assert torch.equal(graph(*other), sum_runs(*other))
