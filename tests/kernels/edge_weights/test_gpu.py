"""The compiled kernels of the weights on a CUDA device."""

from dataclasses import replace

import pytest
import torch

from ..poison import poisoned_new_tensors, surrounded
from .problems import TILE, deviation, problem

pytestmark = pytest.mark.gpu

FLOAT32 = 1e-6
STREAMS = [(1, 1, 64), (2, 1, 32), (2, 2, 16), (3, 1, 16), (4, 1, 128), (2, 4, 16)]


def check(case):
    pairs = zip(case.results(), case.expected(), strict=True)
    for place, (result, expected) in enumerate(pairs):
        assert deviation(result, expected) <= FLOAT32, place


def check_equal(results, expected):
    assert not any(x.isnan().any() for x in expected)
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


def slots(number):
    """Rows of all lengths that fill a number of slots, some of them empty."""
    degrees = []
    while number:
        degree = min(number, (37 * len(degrees) + 5) % 200 + 1)
        degrees += [0] * (len(degrees) % 3) + [degree]
        number -= -(-degree // TILE) * TILE
    return degrees


@pytest.mark.parametrize("n_streams", [1, 2])
@pytest.mark.parametrize("n_slots", [0, 16, 8192, 16384 + 16])
def test_numbers_of_slots(n_slots, n_streams, cuda):
    case = problem(slots(n_slots), n_streams, channels=32, device=cuda)
    assert len(case.cotangent) == n_slots
    check(case)


@pytest.mark.parametrize("streams", STREAMS, ids=str)
def test_streams(streams, cuda):
    check(problem(slots(4096), *streams, device=cuda))


@pytest.mark.parametrize("degree", [255, 256, 257, 1030, 5000])
def test_long_rows(degree, cuda):
    check(problem([3, degree, 40], channels=32, device=cuda))


@pytest.mark.parametrize("unused", [1, 63, 64, 65, 700])
def test_unused_tiles(unused, cuda):
    case = problem(slots(2048), channels=32, unused=unused, device=cuda)
    check(case)
    assert not case.results()[0][2048:].any()


def test_repeats_and_poisoned_outputs_are_identical(cuda):
    case = problem(slots(8192), channels=32, unused=200, device=cuda)
    first = case.results()
    for _ in range(9):
        check_equal(case.results(), first)
    with poisoned_new_tensors():
        check_equal(case.map(surrounded).results(), first)


def test_a_row_does_not_depend_on_where_it_is(cuda):
    case = problem([100, 158, 20], channels=32, device=cuda)
    part = slice(112, 272)
    bias, query, key, strength, scalars = case.inputs
    few = problem([158], channels=32, device=cuda)
    inputs = [bias[part], query[[1, 3]], key[part], strength[part], scalars[part]]
    few = replace(few, inputs=inputs, tables=case.tables, cotangent=case.cotangent[part])
    whole = case.results()
    expected = [x[[1, 3]] if i == 2 else x[part] for i, x in enumerate(whole)]
    check_equal(few.results(), expected)


def test_captured_in_a_cuda_graph(cuda):
    case = problem(slots(2048), channels=32, unused=3, device=cuda)
    other = case.map(lambda x: 0.7 * x)
    other = replace(other, tables=case.tables)
    expected = other.results()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        case.results()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = case.results()
    for old, new in zip(case.inputs, other.inputs, strict=True):
        old.copy_(new)
    case.cotangent.copy_(other.cotangent)
    graph.replay()
    torch.cuda.synchronize()
    check_equal(results, expected)


def test_compiled_whole(cuda):
    """torch.compile takes the operator without a break, forward and backward."""
    case = problem(slots(1024), channels=32, device=cuda)
    leaves = [x.requires_grad_() for x in case.inputs]
    compiled = torch.compile(case.run, fullgraph=True)
    results = torch.autograd.grad(compiled(*leaves), leaves, case.cotangent)
    check_equal(results, torch.autograd.grad(case.run(*leaves), leaves, case.cotangent))


@pytest.mark.parametrize("place", range(5))
def test_what_is_not_finite_shows_in_its_row_and_in_no_other(place, cuda):
    """The compiled minima and maxima of NaN are not those of the interpreter."""
    case = problem([4, 17], device=cuda)
    sound = case.results()
    case.inputs[place][1 if place == 1 else 24] = float("nan")
    weight, *_ = case.results()
    of_row = slice(24, 25) if place == 4 else slice(16, 33)
    assert weight[of_row].isnan().all()
    assert torch.equal(weight[:16], sound[0][:16])


def test_another_device(cuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    here = problem([20, 5], device="cuda:0").results()
    there = problem([20, 5], device="cuda:1").results()
    assert all(x.device.index == 1 for x in there)
    check_equal([x.cpu() for x in there], [x.cpu() for x in here])
