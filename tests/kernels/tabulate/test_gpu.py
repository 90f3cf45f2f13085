"""What only compiled kernels on a CUDA device can show."""

import pytest
import torch
from dp_calc.kernels.tabulate import fused, se_atten, se_r
from dp_calc.kernels.tabulate.select import choose

from .problems import (
    ONE_SIDED,
    OPERATORS,
    all_orders,
    deviation,
    random_problem,
    stored_cases,
)
from .stored import check_stored_float32

pytestmark = pytest.mark.gpu

EACH_OPERATOR = pytest.mark.parametrize("operator", OPERATORS)
CASES = pytest.mark.parametrize("case", stored_cases(), ids=str)
GIB = 2**30


def on_gpu(operator, device, kernels="triton", **options):
    return random_problem(operator, device=device, kernels=kernels, **options)


def needs_memory(device, size):
    free, _ = torch.cuda.mem_get_info(device)
    if free < size:
        pytest.skip(f"needs a CUDA device with {size / GIB:.0f} GiB of free memory")


@CASES
def test_stored_values_in_float32(case, cuda):
    problem = case.problem(torch.float32, cuda, "triton")
    check_stored_float32(case, problem, 5e-6)


@EACH_OPERATOR
def test_repeats_are_identical(operator, cuda):
    first, *others = (
        all_orders(on_gpu(operator, cuda, nloc=200, nnei=70, channels=37), 2)
        for _ in range(10)
    )
    for results in others:
        assert all(torch.equal(a, b) for a, b in zip(first, results, strict=True))


@EACH_OPERATOR
def test_auto_takes_the_kernels(operator, cuda):
    problem = on_gpu(operator, cuda, "auto")
    assert choose("auto", problem.table) is fused
    triton = on_gpu(operator, cuda)
    assert torch.equal(problem(*problem.inputs), triton(*triton.inputs))


@EACH_OPERATOR
def test_auto_gives_the_gradient_of_a_table(operator, cuda):
    problem = on_gpu(operator, cuda, "auto")
    table = problem.table.requires_grad_()
    y = problem.with_table(table, *problem.inputs)
    (by_table,) = torch.autograd.grad(y.sum(), table)
    plain = on_gpu(operator, "cpu", "torch")
    y = plain.with_table(plain.table.requires_grad_(), *plain.inputs)
    (expected,) = torch.autograd.grad(y.sum(), plain.table)
    assert deviation(by_table.cpu(), expected) < 1e-12


@EACH_OPERATOR
def test_agreement_with_the_cpu_at_a_normal_size(operator, cuda):
    """Arguments all over the domain: a single wrong row would show."""
    size = {"nloc": 7, "nnei": 60, "channels": 100}
    results = []
    for device, kernels in ((cuda, "triton"), ("cpu", "torch")):
        problem = on_gpu(operator, device, kernels, **size)
        generator = torch.Generator().manual_seed(11)
        x = problem.inputs[0]
        with torch.no_grad():
            x.copy_(20 * torch.rand(x.shape, generator=generator).double() - 10)
        results.append(all_orders(problem, 2))
    for result, expected in zip(*results, strict=True):
        assert deviation(result.cpu(), expected) <= 1e-12


@EACH_OPERATOR
def test_captured_in_a_cuda_graph(operator, cuda):
    """Two orders of derivative in one graph, replayed on new numbers."""
    problem = on_gpu(operator, cuda, nloc=3, nnei=9)
    other = on_gpu(operator, cuda, nloc=3, nnei=9, seed=8)
    expected = second_order(other)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        second_order(problem)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = second_order(problem)
    with torch.no_grad():
        problem.table.copy_(other.table)
        for tensor, new in zip(problem.inputs, other.inputs, strict=True):
            tensor.copy_(new)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


def second_order(problem):
    y = problem(*problem.inputs)
    first = torch.autograd.grad(y.square().sum(), problem.inputs, create_graph=True)
    total = sum(g.square().sum() for g in first)
    return (y, *first, *torch.autograd.grad(total, problem.inputs))


@pytest.mark.parametrize("operator", ["se_a", "se_t"])
def test_memory_is_a_tenth_of_the_plain_path(operator, cuda):
    peaks = {}
    for kernels in ("triton", "torch"):
        problem = on_gpu(operator, cuda, kernels, nloc=200, nnei=120, channels=100)
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        second_order(problem)
        peaks[kernels] = torch.cuda.max_memory_allocated() - held
    assert peaks["triton"] < peaks["torch"] / 10


def test_offsets_beyond_32_bits_in_results(cuda):
    count, channels = 2**31 // 100 + 1000, 100
    needs_memory(cuda, 32 * GIB)
    table = torch.randn(ONE_SIDED.rows, 6 * channels, device=cuda)
    info = ONE_SIDED.info(torch.float32)
    x = torch.rand(1, count, device=cuda, requires_grad=True)
    y = se_r(table, info, x, channels, kernels="triton")
    (first,) = torch.autograd.grad(y, x, torch.ones_like(y))
    tail = x[:, -64:].detach().requires_grad_()
    expected = se_r(table, info, tail, channels, kernels="torch")
    (expected_first,) = torch.autograd.grad(expected.sum(), tail)
    assert deviation(y[:, -64:], expected) < 1e-5
    assert deviation(first[:, -64:], expected_first) < 1e-5


def test_offsets_beyond_32_bits_in_factors(cuda):
    nloc, nnei, channels = 2**31 // (120 * 100) + 10, 120, 100
    needs_memory(cuda, 32 * GIB)
    table = torch.randn(ONE_SIDED.rows, 6 * channels, device=cuda)
    info = ONE_SIDED.info(torch.float32)
    x = torch.rand(nloc * nnei, 1, device=cuda)
    em = torch.rand(nloc, nnei, 4, device=cuda, requires_grad=True)
    two_embed = torch.rand(nloc * nnei, channels, device=cuda)
    arguments = (table, info, x, em, two_embed)
    y = se_atten(*arguments, channels, False, kernels="triton")
    (first,) = torch.autograd.grad(y.sum(), em)
    last = em[-1:].detach().requires_grad_()
    expected = se_atten(
        table,
        info,
        x[-nnei:],
        last,
        two_embed[-nnei:],
        channels,
        False,
        kernels="torch",
    )
    (expected_first,) = torch.autograd.grad(expected.sum(), last)
    assert deviation(y[-1:], expected) < 1e-5
    assert deviation(first[-1:], expected_first) < 1e-5


def test_another_device(cuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    here = on_gpu("se_a", "cuda:0")
    there = on_gpu("se_a", "cuda:1")
    y = there(*there.inputs)
    assert y.device == torch.device("cuda:1")
    assert torch.equal(y.cpu(), here(*here.inputs).cpu())
