"""The plain PyTorch path against stored values and derivatives."""

import numpy as np
import pytest
import torch
from dp_calc.kernels.tabulate import se_t

from .problems import DATA, deviation, stored_cases
from .stored import check_stored, check_stored_float32

CASES = pytest.mark.parametrize("case", stored_cases(), ids=str)


@CASES
def test_value_and_first_two_orders(case):
    check_stored(case, case.problem(), 1e-12)


@CASES
def test_value_and_first_gradients_in_float32(case):
    check_stored_float32(case, case.problem(torch.float32), 2e-6)


@CASES
def test_derivatives_by_the_table(case):
    problem = case.problem()
    table = problem.table.requires_grad_()
    points = (*problem.inputs, table)
    cotangent = case.tensor("in.dy").requires_grad_()
    value = problem.with_table(table, *problem.inputs)
    *first, by_table = torch.autograd.grad(value, points, cotangent, create_graph=True)
    assert deviation(by_table, case.tensor("ref.g_table")) <= 1e-12
    weights = [case.tensor(f"in.h_{name}") for name in case.names]
    projection = sum((w * g).sum() for w, g in zip(weights, first, strict=True))
    (second,) = torch.autograd.grad(projection, table, retain_graph=True)
    assert deviation(second, case.tensor("ref.gg_table")) <= 1e-12
    mixed = torch.autograd.grad(
        (case.tensor("in.h_table") * by_table).sum(), (cotangent, *problem.inputs)
    )
    for name, result in zip(("dy", *case.names), mixed, strict=True):
        assert deviation(result, case.tensor(f"ref.gt_{name}")) <= 1e-12, name


def test_one_leaf_as_both_inputs_of_se_t():
    with np.load(DATA / "se_t.npz") as file:
        tied = {k.removeprefix("tied/"): torch.from_numpy(file[k]) for k in file}
    x = tied["in.x"].requires_grad_()
    cotangent = tied["in.dy"].requires_grad_()
    value = se_t(tied["in.table"], tied["in.info"], x, x, 6)
    (first,) = torch.autograd.grad(value, x, cotangent, create_graph=True)
    second = torch.autograd.grad((first * tied["in.h_x"]).sum(), (cotangent, x))
    for key, result in zip(
        ("op.y", "op.g_x", "op.gg_dy", "ref.gg_x"), (value, first, *second), strict=True
    ):
        assert deviation(result, tied[key]) <= 1e-12, key
