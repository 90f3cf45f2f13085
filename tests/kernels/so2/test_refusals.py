"""What the operators do not give is an error, and never zeros."""

import dataclasses
from functools import partial

import pytest
import torch
from dp_calc.kernels.so2 import Layout, StackWeights, mix, ops, rotate_in
from torch.autograd import forward_ad

from .problems import (
    TILE,
    mix_problem,
    random_weights,
    rotate_in_problem,
    tile_sum_problem,
)

pytestmark = pytest.mark.gpu

LAYOUT = Layout(1, 2, 16)
PROBLEMS = [rotate_in_problem, mix_problem, tile_sum_problem]
REGISTERED = ("test_schema", "test_faketensor", "test_autograd_registration")
"""What the fourth check looks at, which takes seconds, test_triton.py does by a trace."""

OPTIONS = (LAYOUT.n_focus, "ieee", 0)


def refused(match):
    return pytest.raises(RuntimeError, match=match)


@pytest.mark.parametrize("name", StackWeights.NAMES)
@pytest.mark.parametrize("rows_too", [True, False])
def test_gradients_of_weights(name, rows_too, device):
    (rows,) = mix_problem(LAYOUT, 5, device=device).inputs
    weights, _ = random_weights(LAYOUT, "ieee", device=device)
    matrices = getattr(weights, name).clone().requires_grad_()
    weights = dataclasses.replace(weights, **{name: matrices})
    out = mix(rows.requires_grad_(rows_too), weights, 0)
    with refused("no gradients of weights"):
        torch.autograd.grad(out.sum(), matrices)


def test_gradient_of_the_scale(device):
    problem = rotate_in_problem(LAYOUT, 5, device=device)
    scale = torch.ones(1, LAYOUT.width, device=device, requires_grad=True)
    for result in rotate_in(*problem.inputs, scale, 1, LAYOUT.channels):
        with refused("no gradients of weights"):
            torch.autograd.grad(result.sum(), scale, retain_graph=True)


@pytest.mark.parametrize("make", PROBLEMS)
def test_derivatives_in_forward_mode(make, device):
    problem = make(LAYOUT, 16, device=device)
    with forward_ad.dual_level():
        for place, tensor in enumerate(problem.inputs):
            inputs = list(problem.inputs)
            inputs[place] = forward_ad.make_dual(tensor, torch.ones_like(tensor))
            with refused("forward mode"):
                problem.run(*inputs)


@pytest.mark.parametrize("make", PROBLEMS)
def test_second_derivatives(make, device):
    problem = make(LAYOUT, 16, device=device)
    leaves = [x.requires_grad_() for x in problem.inputs]
    squares = sum(x.square().sum() for x in problem.run(*leaves))
    first = torch.autograd.grad(squares, leaves, create_graph=True)
    for gradient in first:
        assert gradient.requires_grad
        for leaf in leaves:
            with refused("no autograd formula was registered"):
                torch.autograd.grad(gradient.sum(), leaf, retain_graph=True)


def test_gradients_through_what_is_saved(device):
    (rows,) = mix_problem(LAYOUT, 5, device=device).inputs
    weights, _ = random_weights(LAYOUT, "ieee", device=device)
    out, *saved = ops.mix(rows.requires_grad_(), *weights.tensors, *OPTIONS, True)
    assert out.requires_grad
    for tensor in saved:
        with refused("does not require grad"):
            torch.autograd.grad(tensor.sum(), rows)


def test_a_backward_without_what_it_needs(device):
    (rows,) = mix_problem(LAYOUT, 5, device=device).inputs
    weights, _ = random_weights(LAYOUT, "ieee", device=device)
    out, *_ = ops.mix(rows.requires_grad_(), *weights.tensors, *OPTIONS, False)
    with refused("run with save=False"):
        torch.autograd.grad(out.sum(), rows)


def test_nothing_is_saved_unless_it_is_needed(device, monkeypatch):
    saved = []
    mix_op = ops.mix

    def watched(*args):
        saved.append(args[-1])
        return mix_op(*args)

    monkeypatch.setattr(ops, "mix", watched)
    (rows,) = mix_problem(LAYOUT, 5, device=device).inputs
    weights, _ = random_weights(LAYOUT, "ieee", device=device)
    mix(rows, weights, 0)
    leaf = rows.clone().requires_grad_()
    mix(leaf, weights, 0)
    with torch.no_grad():
        mix(leaf, weights, 0)
    assert saved == [False, True, False]


def test_operators_are_registered_completely(device):
    check = partial(torch.library.opcheck, test_utils=REGISTERED)
    inputs = rotate_in_problem(LAYOUT, 16, device=device).inputs
    fixed = (torch.ones(1, LAYOUT.width, device=device), 1)
    rows = torch.ones(16, LAYOUT.n_rows, LAYOUT.width, device=device)
    copies = [x.clone() for x in inputs]
    check(ops.rotate_in_backward, (rows, rows[:, 0], *copies, *fixed))
    leaves = [x.requires_grad_() for x in inputs]
    check(ops.rotate_in, (*leaves, *fixed, LAYOUT.channels))
    check(ops.rotate_in, (*leaves, None, 1, LAYOUT.channels))
    inputs = tile_sum_problem(LAYOUT, 32, device=device).inputs
    sums = torch.ones(2, LAYOUT.n_packed, LAYOUT.width, device=device)
    check(ops.tile_sum_backward, (sums, *(x.clone() for x in inputs), TILE))
    check(ops.tile_sum, (*(x.requires_grad_() for x in inputs), TILE))


@pytest.mark.parametrize("cohort", [0, 16])
def test_the_stack_is_registered_completely(cohort, device):
    (rows,) = mix_problem(LAYOUT, 20, device=device).inputs
    weights, _ = random_weights(LAYOUT, "bf16x6", device=device)
    options = (LAYOUT.n_focus, "bf16x6", cohort)
    _, *saved = ops.mix(rows, *weights.tensors, *options, True)
    check = partial(torch.library.opcheck, test_utils=REGISTERED)
    check(ops.mix_backward_op, (rows.clone(), *saved, *weights.tensors[3:], *options))
    check(ops.mix, (rows.requires_grad_(), *weights.tensors, *options, True))


def test_compiled_whole(device):
    """torch.compile takes the operators without a break, forward and backward."""
    problem = mix_problem(LAYOUT, 20, "bf16x6", device=device)
    leaf = problem.inputs[0].requires_grad_()
    backend = "inductor" if device == "cuda" else "aot_eager"

    def energy(rows):
        return problem.run(rows)[0].square().sum()

    compiled = torch.compile(energy, fullgraph=True, backend=backend)
    (result,) = torch.autograd.grad(compiled(leaf), leaf)
    (expected,) = torch.autograd.grad(energy(leaf), leaf)
    assert torch.equal(result, expected)
