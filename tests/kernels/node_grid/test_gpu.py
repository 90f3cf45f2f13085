"""What only compiled kernels on a CUDA device can show."""

import pytest
import torch
from dp_calc.kernels.node_grid import grid_product, reference

from .problems import Problem, deviation, random_problem

pytestmark = pytest.mark.gpu

NEO, MINI = (48, 152), (27, 104)
GIB = 2**30


def root_mean_square(result, expected):
    error = (result.double() - expected).square().mean().sqrt()
    return (error / expected.square().mean().sqrt()).item()


@pytest.mark.parametrize("n_nodes", [0, 1, 37, 127, 128, 129, 4096])
@pytest.mark.parametrize("precision", ["ieee", "tf32x3", "bf16x6", "fp16x3"])
def test_numbers_of_nodes(n_nodes, precision, cuda):
    problem = random_problem(n_nodes, *NEO, 32, precision, cuda)
    for result, expected in zip(problem.results(), problem.expected(), strict=True):
        assert deviation(result, expected) <= 1e-6


@pytest.mark.parametrize("grid", [NEO, MINI])
@pytest.mark.parametrize("precision", ["tf32x3", "bf16x6", "fp16x3"])
def test_error_is_that_of_ieee(precision, grid, cuda):
    errors = []
    for arithmetic in (precision, "ieee"):
        problem = random_problem(256, *grid, 96, arithmetic, cuda)
        pairs = zip(problem.results(), problem.expected(), strict=True)
        errors.append([root_mean_square(a, b) for a, b in pairs])
    for error, usual in zip(*errors, strict=True):
        assert error <= 2 * usual


@pytest.mark.parametrize("precision", ["ieee", "tf32", "tf32x3", "bf16x6", "fp16x3"])
def test_repeats_are_identical(precision, cuda):
    problem = random_problem(513, *NEO, 96, precision, cuda)
    first = problem.results()
    for _ in range(9):
        results = problem.results()
        assert all(torch.equal(a, b) for a, b in zip(results, first, strict=True))


@pytest.mark.parametrize("precision", ["ieee", "tf32x3", "bf16x6", "fp16x3"])
def test_a_node_does_not_depend_on_the_others(precision, cuda):
    problem = random_problem(129, *MINI, 33, precision, cuda)
    chosen = [5, 128, 40]
    fields = tuple(x[chosen] for x in problem.fields)
    few = Problem(fields, problem.cotangent[chosen], problem.matrices)
    for result, expected in zip(few.results(), problem.results(), strict=True):
        assert torch.equal(result, expected[chosen])


def test_captured_in_a_cuda_graph(cuda):
    problem = random_problem(37, *NEO, 32, "bf16x6", cuda)
    other = random_problem(37, *NEO, 32, "bf16x6", cuda)
    for x in (*other.fields, other.cotangent):
        x.mul_(-1.5)
    expected = other.results()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        problem.results()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = problem.results()
    for x, new in zip(problem.fields, other.fields, strict=True):
        x.copy_(new)
    problem.cotangent.copy_(other.cotangent)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


def test_memory_is_that_of_the_results(cuda):
    problem = random_problem(1024, *NEO, 96, "bf16x6", cuda)
    problem.results()
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    results = problem.results()
    size = sum(x.numel() * x.element_size() for x in results)
    assert torch.cuda.max_memory_allocated() - held <= 1.1 * size


def test_offsets_beyond_32_bits(cuda):
    n_coefficients, channels = 12, 96
    n_nodes = 2**31 // (n_coefficients * channels) + 10
    free, _ = torch.cuda.mem_get_info(cuda)
    if free < 64 * GIB:
        pytest.skip("needs a CUDA device with 64 GiB of free memory")
    matrices = random_problem(1, n_coefficients, 24, 1, device=cuda).matrices
    shape = (n_nodes, n_coefficients, channels)
    left = torch.zeros(shape, device=cuda)
    left[-1] = torch.randn(shape[1:], device=cuda)
    left.requires_grad_()
    out = grid_product(left, left.detach(), matrices)
    (grad,) = torch.autograd.grad(out, left, torch.ones_like(out))
    last = left[-1:].detach().requires_grad_()
    wanted = reference.grid_product(last, last.detach(), matrices)
    (wanted_grad,) = torch.autograd.grad(wanted.sum(), last)
    assert deviation(out[-1:], wanted.double()) <= 1e-5
    assert deviation(grad[-1:], wanted_grad.double()) <= 1e-5
    assert not out[:-1].any()


def test_another_device(cuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    here = random_problem(3, *MINI, 5, device="cuda:0").results()
    there = random_problem(3, *MINI, 5, device="cuda:1").results()
    assert all(x.device.index == 1 for x in there)
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(here, there, strict=True))
