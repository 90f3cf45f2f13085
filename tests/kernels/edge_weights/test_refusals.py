"""What the operator does not give is an error, and never zeros."""

from dataclasses import replace

import pytest
import torch
from dp_calc.kernels.edge_weights import ops
from torch.autograd import forward_ad

from .problems import TILE, problem

pytestmark = pytest.mark.gpu


def refused(match):
    return pytest.raises(RuntimeError, match=match)


@pytest.mark.parametrize("name", ["null", "competition", "competition_bias"])
def test_gradients_of_tables(name, device):
    case = problem([5], device=device)
    table = getattr(case.tables, name).requires_grad_()
    out = case.run(*case.inputs)
    with refused("no gradients of weights"):
        torch.autograd.grad(out.sum(), table)


def test_derivatives_in_forward_mode(device):
    case = problem([5], device=device)
    with forward_ad.dual_level():
        for place, tensor in enumerate(case.inputs):
            inputs = list(case.inputs)
            inputs[place] = forward_ad.make_dual(tensor, torch.ones_like(tensor))
            with refused("forward mode"):
                case.run(*inputs)


def test_second_derivatives(device):
    case = problem([5], device=device)
    leaves = [x.requires_grad_() for x in case.inputs]
    out = case.run(*leaves)
    for gradient in torch.autograd.grad(out.square().sum(), leaves, create_graph=True):
        assert gradient.requires_grad
        for leaf in leaves:
            with refused("no autograd formula was registered"):
                torch.autograd.grad(gradient.sum(), leaf, retain_graph=True)


@pytest.mark.parametrize("place", range(5))
def test_inputs_of_another_dtype_or_shape(place, device):
    case = problem([5], device=device)
    for change in (torch.Tensor.double, lambda x: x[..., :-1]):
        inputs = list(case.inputs)
        inputs[place] = change(inputs[place])
        with pytest.raises(ValueError, match="must be float32"):
            case.run(*inputs)


def test_inputs_that_do_not_belong_together(device):
    case = problem([5], device=device)
    with pytest.raises(ValueError, match="belong together"):
        case.run(*case.inputs[:4])
    twice = replace(case, rows=(case.rows[0].repeat(2), case.rows[1]))
    with pytest.raises(ValueError, match="16 slots are not 2 tiles of 16"):
        twice.run(*case.inputs)


@pytest.mark.parametrize("n_streams", [1, 2])
def test_operators_are_registered_completely(n_streams, device):
    case = problem([0, 17], n_streams, device=device)
    scalars = case.inputs[4] if n_streams > 1 else None
    tables = tuple(vars(case.tables).values())
    inputs = [*case.inputs[:4], scalars]
    _, query, key, strength, _ = copies = [x if x is None else x.clone() for x in inputs]
    leaves = [x if x is None else x.requires_grad_() for x in inputs]
    # The fourth takes seconds; test_triton.py has a trace.
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    arguments = (*leaves, *case.rows, *tables, TILE)
    torch.library.opcheck(ops.edge_weights, arguments, test_utils=tests)
    saved = ops.edge_weights(*copies, *case.rows, *tables, TILE)
    nodes = (query, key, strength, copies[4], *case.rows)
    numbers = (case.tables.competition, case.tables.norm_eps, TILE)
    arguments = (case.cotangent, *saved, *nodes, *numbers)
    torch.library.opcheck(ops.edge_weights_backward, arguments, test_utils=tests)
