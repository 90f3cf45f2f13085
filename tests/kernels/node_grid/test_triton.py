"""The kernels, on a CUDA device or in Triton's interpreter (test_interpreter.py)."""

import math

import pytest
import torch
from dp_calc.kernels.node_grid import grid_product, operators
from dp_calc.kernels.node_grid.launch import Launch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from .problems import Problem, deviation, random_problem

pytestmark = pytest.mark.gpu

FLOAT32 = 1e-6
SPLIT = ("tf32x3", "bf16x6", "fp16x3")
EACH_PRECISION = pytest.mark.parametrize("precision", ["ieee", *SPLIT])
SIZES = [  # nodes, coefficients, points, channels
    (0, 12, 24, 5),
    (1, 4, 26, 1),
    (2, 48, 152, 33),
    (37, 12, 26, 3),
    (1, 27, 104, 70),
    (2, 75, 26, 9),
    (1, 80, 152, 3),
    (3, 17, 65, 16),
]
LAUNCHES = [
    Launch(rows=16, points=16, piece=16, warps=1),
    Launch(rows=128, points=64, piece=64, warps=8),
    Launch(rows=64, points=32, piece=32, stages=3),
    Launch(rows=32, points=64, piece=16, stages=2),
]


def check(problem, tolerance=FLOAT32):
    pairs = zip(problem.results(), problem.expected(), strict=True)
    for place, (result, expected) in enumerate(pairs):
        assert deviation(result, expected) <= tolerance, place


def refused(match):
    return pytest.raises(RuntimeError, match=match)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_product_and_gradients(size, device):
    check(random_problem(*size, device=device))


@pytest.mark.parametrize("precision", SPLIT)
@pytest.mark.parametrize("size", SIZES[2:4], ids=str)
def test_precisions(size, precision, device):
    check(random_problem(*size, precision, device))


def test_tf32_is_what_it_says(device):
    tolerance = FLOAT32 if device == "cpu" else 4e-3  # the interpreter does not round
    check(random_problem(*SIZES[2], "tf32", device), tolerance)


@pytest.mark.parametrize("n_coefficients", [12, 48, 75])
@pytest.mark.parametrize("launch", LAUNCHES, ids=str)
def test_launches(launch, n_coefficients, device, monkeypatch):
    monkeypatch.setattr(operators, "launch_for", lambda *_: launch)
    check(random_problem(5, n_coefficients, 40, 7, device=device))


@EACH_PRECISION
@pytest.mark.parametrize("size", [1e-15, 1e15])
def test_large_and_small_numbers(precision, size, device):
    problem = random_problem(2, 12, 26, 5, precision, device)
    left, right = problem.fields
    check(Problem((size * left, right), problem.cotangent, problem.matrices))


def test_one_field_twice(device):
    problem = random_problem(2, 12, 26, 5, device=device)
    field = problem.fields[0].requires_grad_()
    out = grid_product(field, field, problem.matrices)
    (grad,) = torch.autograd.grad(out, field, problem.cotangent)
    twins = Problem((field, field.detach()), problem.cotangent, problem.matrices)
    _, of_left, of_right = twins.expected()
    assert deviation(grad, of_left + of_right) <= FLOAT32


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # interpreter
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
@EACH_PRECISION
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_is_not_finite_stays_in_its_node_and_channel(poison, precision, device):
    problem = random_problem(3, 12, 26, 7, precision, device)
    sound = problem.results()
    problem.fields[0][1, 4, 2] = poison
    out, of_left, of_right = problem.results()
    assert torch.equal(of_left, sound[1])  # does not depend on it
    for result, expected in ((out, sound[0]), (of_right, sound[2])):
        assert not result[1, :, 2].isfinite().any()
        result[1, :, 2] = expected[1, :, 2]
        assert torch.equal(result, expected)


def test_poisoned_surroundings_and_outputs(device):
    """NaN before and after every input, and in every new tensor before it is filled."""
    problem = random_problem(2, 27, 26, 5, device=device)
    expected = problem.results()

    def embed(tensor):
        buffer = torch.full((tensor.numel() + 64,), math.nan, device=device)
        buffer[32:-32] = tensor.reshape(-1)
        return buffer[32:-32].view(tensor.shape)

    fields = tuple(embed(x) for x in problem.fields)
    poisoned = Problem(fields, embed(problem.cotangent), problem.matrices)
    was = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # fills new tensors with NaN
    try:
        assert torch.empty(3, device=device).isnan().all()
        results = poisoned.results()
    finally:
        torch.use_deterministic_algorithms(was)
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


def test_layout_of_inputs_and_cotangents_does_not_matter(device):
    problem = random_problem(3, 12, 26, 4, device=device)
    cotangent = torch.ones_like(problem.cotangent)
    expected = Problem(problem.fields, cotangent, problem.matrices).results()
    left, right = problem.fields
    strided = (left.mT.contiguous().mT, right.repeat_interleave(2, -1)[..., ::2])
    constant = cotangent[:1, :1, :1].expand(cotangent.shape)
    results = Problem(strided, constant, problem.matrices).results()
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


def test_inputs_are_not_changed(device):
    problem = random_problem(3, 12, 26, 4, device=device)
    tables = (problem.matrices.to_grid, problem.matrices.from_grid)
    tensors = (*problem.fields, problem.cotangent, *tables)
    before = [x.clone() for x in tensors]
    problem.results()
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))


def test_second_derivatives_are_refused(device):
    problem = random_problem(2, 4, 26, 3, device=device)
    left, right = (x.requires_grad_() for x in problem.fields)
    out = grid_product(left, right, problem.matrices)
    first = torch.autograd.grad(out.square().sum(), (left, right), create_graph=True)
    for grad in first:
        for field in (left, right):
            with refused("first derivatives only"):
                torch.autograd.grad(grad.sum(), field, retain_graph=True)


@pytest.mark.parametrize("table", ["to_grid", "from_grid"])
def test_gradients_of_the_matrices_are_refused(table, device):
    problem = random_problem(2, 4, 26, 3, device=device)
    getattr(problem.matrices, table).requires_grad_()
    left = problem.fields[0].requires_grad_()
    out = grid_product(left, problem.fields[1], problem.matrices)
    with refused("no gradient of the matrices"):
        torch.autograd.grad(out.sum(), left)


def test_forward_mode_is_refused(device):
    problem = random_problem(2, 4, 26, 3, device=device)
    left, right = problem.fields
    ones = torch.ones_like(left)
    out = grid_product(left.detach().requires_grad_(), right, problem.matrices)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(left, ones)
        for fields in ((dual, right), (right, dual)):
            with refused("forward mode"):
                grid_product(*fields, problem.matrices)
        with refused("forward mode"):
            out.backward(forward_ad.make_dual(ones, ones))


def test_what_the_kernels_do_not_take_is_refused(device):
    problem = random_problem(2, 4, 26, 3, device=device)
    left, right = problem.fields
    with pytest.raises(ValueError, match=r"left must be float32 \(B, K, C\)"):
        grid_product(left.double(), right.double(), problem.matrices)
    with pytest.raises(
        ValueError, match=r"right must be .* with B = 2, K = 4, C = 3, not"
    ):
        grid_product(left, right[:, :3], problem.matrices)
    with pytest.raises(ValueError, match=r"left must be .* with K = 4, not"):
        grid_product(left[:, :3], right[:, :3], problem.matrices)
    many = random_problem(1, 81, 26, 3, device=device)
    with pytest.raises(ValueError, match="at most 80 coefficients, not 81"):
        grid_product(*many.fields, many.matrices)


def test_operators_are_registered_completely(device):
    problem = random_problem(2, 4, 26, 3, device=device)
    tables = (problem.matrices.to_grid, problem.matrices.from_grid)
    fields = tuple(x.requires_grad_() for x in problem.fields)
    torch.library.opcheck(operators._product, (*fields, *tables, 26, 4, "ieee"))
    inputs = (problem.cotangent, *(x.detach() for x in fields), *tables)
    torch.library.opcheck(operators._product_backward, (*inputs, 26, "ieee"))


def test_a_trace_for_few_nodes_runs_any_number(device):
    def gradients(left, right, cotangent):
        left, right = (x.detach().requires_grad_() for x in (left, right))
        out = grid_product(left, right, problem.matrices)
        return torch.autograd.grad(out, (left, right), cotangent)

    problem = random_problem(2, 12, 26, 3, device=device)
    graph = make_fx(gradients)(*problem.fields, problem.cotangent)
    called = [str(node.target) for node in graph.graph.nodes]
    assert "dp_calc.grid_product.default" in called
    assert "dp_calc.grid_product_backward.default" in called
    many = random_problem(37, 12, 26, 3, device=device)
    results = graph(*many.fields, many.cotangent)
    expected = gradients(*many.fields, many.cotangent)
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


def test_compiled_whole(device):
    """torch.compile takes the operator without a break, forward and backward."""
    problem = random_problem(2, 12, 26, 3, device=device)
    fields = [x.requires_grad_() for x in problem.fields]
    backend = "inductor" if device == "cuda" else "aot_eager"

    def energy(left, right):
        return grid_product(left, right, problem.matrices).square().sum()

    compiled = torch.compile(energy, fullgraph=True, backend=backend)
    first = torch.autograd.grad(compiled(*fields), fields)
    for grad, expected in zip(
        first, torch.autograd.grad(energy(*fields), fields), strict=True
    ):
        assert deviation(grad, expected.double()) <= FLOAT32
