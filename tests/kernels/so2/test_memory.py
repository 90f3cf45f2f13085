"""What the backward of the SO(2) stack allocates beside its result."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .problems import Layout, mix_problem

pytestmark = pytest.mark.gpu


class NewTensors(TorchDispatchMode):
    """Collects all tensors that operators return, which are none of their inputs."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        results = operator(*args, **(kwargs or {}))
        given = {id(x) for x in tree_leaves((args, kwargs))}
        for x in tree_leaves(results):
            if isinstance(x, Tensor) and id(x) not in given:
                self.sizes.append(x.numel())
        return results


def test_the_backward_allocates_its_result_only(device):
    """Not, say, gradients of zero for what the forward saved."""
    problem = mix_problem(Layout(1, 1, 16), 70, n_layers=3, device=device)
    leaf = problem.inputs[0].requires_grad_()
    (out,) = problem.run(leaf)
    with NewTensors() as new:
        torch.autograd.grad(out, leaf, problem.cotangents)
    assert sum(new.sizes) == leaf.numel()


def test_nothing_is_pulled_back_where_nothing_comes(device):
    """A gradient of zero, or none, as PyTorch's own operators give there."""

    class Ignored(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return None

    problem = mix_problem(Layout(1, 1, 16), 16, device=device)
    leaf = problem.inputs[0].requires_grad_()
    (out,) = problem.run(leaf)
    total = Ignored.apply(out).sum()
    assert torch.autograd.grad(total, leaf, allow_unused=True) == (None,)
