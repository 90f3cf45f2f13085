"""Borders, far points, NaN, empty axes, folds and layouts on the plain PyTorch path."""

import math

import pytest
import torch
from dp_calc.kernels.tabulate import Domain, se_a, se_atten, se_r, se_t_tebd

from .problems import (
    ONE_SIDED,
    OPERATORS,
    TWO_SIDED,
    call,
    deviation,
    random_problem,
)

BORDERS = [(se_r, ONE_SIDED), (se_t_tebd, TWO_SIDED)]


def at_points(operator, domain, points, table):
    x = torch.tensor([points], dtype=table.dtype)
    channels = table.shape[1] // 6
    if operator is se_t_tebd:
        x = x[..., None].requires_grad_()
        y = operator(table, domain.info(table.dtype), x, x.detach(), channels)[0, :, 0]
    else:
        y = operator(table, domain.info(table.dtype), x.requires_grad_(), channels)[0]
    return x, y


@pytest.mark.parametrize(("operator", "domain"), BORDERS)
def test_rows_start_at_their_left_border(operator, domain):
    table = torch.randn(domain.rows, 6, dtype=torch.float64)
    first = [domain.left, domain.lower, domain.upper]
    _, y = at_points(operator, domain, first, table)
    rows = [0, domain.wing, domain.wing + domain.middle]
    assert torch.equal(y, table[rows, :1])


@pytest.mark.parametrize(("operator", "domain"), BORDERS)
def test_straight_line_beyond_the_ends(operator, domain):
    table = torch.randn(domain.rows, 6, dtype=torch.float64)
    a = table[-1].tolist()
    tau = domain.coarse
    end = sum(a[p] * tau**p for p in range(6))
    slope = sum(p * a[p] * tau ** (p - 1) for p in range(1, 6))
    points = [domain.right, domain.right + 3.0, 1e30, domain.left - 2.0, -1e30]
    x, y = at_points(operator, domain, points, table)
    b0, b1 = table[0, :2].tolist()
    left = domain.left
    expected = [
        end,
        end + 3.0 * slope,
        end + slope * (1e30 - domain.right),
        b0 - 2.0 * b1,
        b0 - b1 * (1e30 + left),
    ]
    assert y[:, 0].tolist() == pytest.approx(expected, rel=1e-12)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert first.flatten().tolist() == pytest.approx([slope] * 3 + [b1] * 2, rel=1e-12)
    (second,) = torch.autograd.grad(first.sum(), x, materialize_grads=True)
    assert second.flatten().tolist() == [0.0] * 5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("operator", "domain"), BORDERS)
def test_last_number_before_the_end_stays_in_the_table(operator, domain, dtype):
    domain = Domain.from_range(
        domain.lower, domain.upper, two_sided=domain.two_sided, extrapolate=7.0
    )
    table = torch.ones(domain.rows, 6, dtype=dtype)
    right = torch.tensor(domain.right, dtype=dtype)
    before = torch.nextafter(right, torch.zeros_like(right)).item()
    _, y = at_points(operator, domain, [before, right.item()], table)
    assert deviation(y[0], y[1]) < 1e-5


@pytest.mark.parametrize("operator", OPERATORS)
def test_nan_goes_through(operator):
    problem = random_problem(operator, nloc=2, nnei=3)
    inputs = [tensor.detach().clone() for tensor in problem.inputs]
    inputs[0].view(-1)[1] = math.nan
    inputs = [tensor.requires_grad_() for tensor in inputs]
    y = problem(*inputs)
    assert y[0].isnan().any()
    assert not y[1].isnan().any()
    first = torch.autograd.grad(y.sum(), inputs, create_graph=True)
    assert first[0].view(-1)[1].isnan()
    second = torch.autograd.grad(first[0][0].sum(), inputs[0])[0]
    assert second.view(-1)[1].isnan()


@pytest.mark.parametrize("sizes", [(0, 3), (2, 0), (0, 0)])
@pytest.mark.parametrize("operator", OPERATORS)
def test_empty_axes(operator, sizes):
    problem = random_problem(operator, nloc=sizes[0], nnei=sizes[1], channels=3)
    y = problem(*problem.inputs)
    full = random_problem(operator, nloc=1, nnei=1, channels=3)
    rank = full(*full.inputs).ndim
    assert y.ndim == rank
    assert y.shape[0] == sizes[0]
    assert not y.any()
    first = torch.autograd.grad(y.sum(), problem.inputs, create_graph=True)
    assert [g.shape for g in first] == [t.shape for t in problem.inputs]
    total = sum(g.sum() for g in first)
    second = torch.autograd.grad(total, problem.inputs, materialize_grads=True)
    assert [g.shape for g in second] == [t.shape for t in problem.inputs]


def padded_problem(operator):
    """Atom 0 has 3 padding slots of 5, atom 1 none, atom 2 five."""
    problem = random_problem(operator, nloc=3, nnei=5)
    x, em, *two = [tensor.detach().clone() for tensor in problem.inputs]
    for atom, start in ((0, 2), (2, 0)):
        x[atom, start:] = -0.37
        em[atom, start:] = torch.tensor([-0.37, 0, 0, 0], dtype=torch.float64)
        for factor in two:
            factor.view(3, 5, -1)[atom, start:] = 0.25
    inputs = [tensor.requires_grad_() for tensor in (x, em, *two)]
    return problem, inputs


def test_fold_keeps_the_value_and_gathers_the_gradient():
    problem, inputs = padded_problem("se_atten")
    results = []
    for is_sorted in (True, False):
        y = call("se_atten", problem.table, problem.info, inputs, is_sorted=is_sorted)
        results.append((y, torch.autograd.grad(y.square().sum(), inputs)))
    (folded, folded_first), (plain, plain_first) = results
    assert deviation(folded, plain) < 1e-13
    for with_fold, without in zip(folded_first, plain_first, strict=True):
        with_fold, without = with_fold.view(3, 5, -1), without.view(3, 5, -1)
        assert deviation(with_fold[0, :2], without[0, :2]) < 1e-13
        assert deviation(with_fold[1], without[1]) < 1e-13
        for atom, start in ((0, 2), (2, 0)):
            assert not with_fold[atom, start + 1 :].any()
            total = without[atom, start:].sum(0)
            assert deviation(with_fold[atom, start], total) < 1e-13


def test_fold_is_a_contract_of_the_caller():
    """From the first slot like the last on, nothing else is looked at."""
    problem, inputs = padded_problem("se_a")
    x, em = (tensor.detach().clone() for tensor in inputs)
    expected = problem(x, em)
    x[0, 3], em[0, 3] = 1.0, 5.0
    assert torch.equal(problem(x, em), expected)
    unsorted = call(
        "se_atten",
        problem.table,
        problem.info,
        (x, em, torch.zeros(15, 2, dtype=torch.float64)),
    )
    assert not torch.allclose(unsorted[0], expected[0])


def test_larger_bases_fold_by_their_direction_only():
    problem = random_problem("se_a", nloc=1, nnei=4, components=9)
    x, em = (tensor.detach().clone() for tensor in problem.inputs)
    x[:] = 0.53
    em[:] = 0.0
    em[..., 4:] = 7.0
    y = se_a(problem.table, problem.info, x, em, 2)
    two_embed = torch.zeros(4, 2, dtype=torch.float64)
    plain = se_atten(problem.table, problem.info, x, em, two_embed, 2, False)
    assert deviation(y, plain) < 1e-13
    em[0, 2, 5] = 100.0
    assert torch.equal(se_a(problem.table, problem.info, x, em, 2), y)


@pytest.mark.parametrize("operator", OPERATORS)
def test_shape_of_em_x_and_strides_do_not_matter(operator):
    problem = random_problem(operator, nloc=3, nnei=4)
    inputs = [tensor.detach() for tensor in problem.inputs]
    expected = problem(*inputs)
    strided = [t.repeat_interleave(2, -1)[..., ::2] for t in inputs]
    assert not strided[-1].is_contiguous()
    assert torch.equal(problem(*strided), expected)
    if operator not in ("se_r", "se_t_tebd"):
        assert torch.equal(problem(inputs[0].reshape(-1, 1), *inputs[1:]), expected)


@pytest.mark.parametrize("operator", OPERATORS)
def test_inputs_are_left_alone(operator):
    problem = random_problem(operator)
    before = [t.detach().clone() for t in (problem.table, problem.info, *problem.inputs)]
    problem(*problem.inputs).sum().backward()
    after = (problem.table, problem.info, *problem.inputs)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
