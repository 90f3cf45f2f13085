"""Derivatives of the plain PyTorch path against finite differences, to third order."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from .problems import OPERATORS, REGIONS, random_problem
from .second_order import check_second_order

SIZES = [(operator, 4) for operator in OPERATORS] + [("se_a", 9), ("se_atten", 9)]


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize(("operator", "components"), SIZES)
def test_first_and_second_derivatives_in_each_region(operator, components, region):
    problem = random_problem(
        operator, nloc=1, nnei=2, components=components, regions=(region,)
    )
    assert gradcheck(problem, problem.inputs)
    assert gradgradcheck(problem, problem.inputs)


@pytest.mark.parametrize("operator", OPERATORS)
def test_derivatives_by_the_table(operator):
    problem = random_problem(operator, nloc=1, nnei=5, channels=1)
    used = _columns_in_use(problem)

    def function(coefficients, *inputs):
        table = problem.table.clone()
        table[used] = coefficients
        return problem.with_table(table, *inputs)

    arguments = (problem.table[used].requires_grad_(), *problem.inputs)
    assert gradcheck(function, arguments)
    assert gradgradcheck(function, arguments)


def _columns_in_use(problem):
    table = problem.table.clone().requires_grad_()
    problem.with_table(table, *problem.inputs).sum().backward()
    return torch.nonzero(table.grad.any(1))[:, 0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("operator", OPERATORS)
def test_second_order_against_central_differences(operator, dtype):
    problem = random_problem(operator, nloc=2, nnei=5, dtype=dtype)
    check_second_order(problem, problem.inputs)


@pytest.mark.parametrize("operator", OPERATORS)
def test_third_order(operator):
    problem = random_problem(operator, nloc=1, nnei=3, channels=1, regions=("fine",))
    cotangent = torch.randn_like(problem(*problem.inputs)).requires_grad_()

    def first_gradients(cotangent, *inputs):
        return torch.autograd.grad(problem(*inputs), inputs, cotangent, create_graph=True)

    assert gradgradcheck(first_gradients, (cotangent, *problem.inputs))


def test_harness_sees_a_missing_second_derivative():
    class Incomplete(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, u):
            return 3 * ctx.saved_tensors[0].detach() ** 2 * u

    x = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    with pytest.raises(AssertionError, match="derivative 1"):
        check_second_order(Incomplete.apply, (x,))
    check_second_order(lambda x: x**3, (x,))
