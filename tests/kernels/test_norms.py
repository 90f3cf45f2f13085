"""Norms and the scalar path of grid networks, on a CUDA device or interpreted."""

from functools import partial

import pytest
import torch
from dp_calc.kernels.norms import balanced_norm, stream_norm
from dp_calc.kernels.norms import operators as norm_operators
from dp_calc.kernels.scalar_path import operators as path_operators
from dp_calc.kernels.scalar_path import scalar_path
from dp_calc.models.dpa4.grid_net import ScalarPath
from dp_calc.models.dpa4.norm import balanced_normalize, rms_normalize
from torch.autograd import forward_ad

from .poison import poisoned_new_tensors, surrounded

pytestmark = pytest.mark.gpu

FLOAT32 = 1e-6
EPS = 1e-5


def random(*shape, device="cpu", seed=3):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(device)


def balanced(x, balance, scale, bias):
    if x.dtype == torch.float32:
        return balanced_norm(x, balance, scale, bias, EPS)
    return balanced_normalize(x, balance, EPS, scale, bias)


def streams(x, scale):
    if x.dtype == torch.float32:
        return stream_norm(x, scale, EPS)
    return rms_normalize(x, EPS) * scale[:, None]


def path(product, scalars, gate):
    how = scalar_path if product.dtype == torch.float32 else ScalarPath()
    return how(product, scalars, gate)


def balanced_problem(n, n_rows, channels, device):
    weights = [
        random(n_rows, device=device).abs(),
        random(n_rows, channels, device=device),
    ]
    return [random(n, n_rows, channels, device=device)], [
        *weights,
        random(1, channels, device=device),
    ]


def stream_problem(n, n_streams, channels, device):
    rows = random(n, n_streams, channels, device=device)
    return [rows.movedim(1, 0)], [random(n_streams, channels, device=device)]


def path_problem(n, n_rows, channels, device):
    product = random(n, n_rows, 3, channels, device=device)
    scalars = random(n, 2 * channels, device=device)
    return [product, scalars, random(n, channels, device=device)], []


CASES = {
    "balanced": (balanced, balanced_problem),
    "streams": (streams, stream_problem),
    "path": (path, path_problem),
}
SIZES = [(0, 4, 16), (1, 1, 16), (5, 4, 24), (17, 9, 32), (16, 16, 64), (3, 25, 80)]


def with_gradients(function, inputs, weights, cotangent):
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = function(*leaves, *weights)
    return out.detach(), *torch.autograd.grad(out, leaves, cotangent.to(out.dtype))


def double(tensors):
    return [x.double() for x in tensors]


def case(name, size, device):
    function, problem = CASES[name]
    inputs, weights = problem(*size, device)
    return function, inputs, weights, random(*inputs[0].shape, device=device, seed=9)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_sizes(name, size, device):
    function, inputs, weights, cotangent = case(name, size, device)
    results = with_gradients(function, inputs, weights, cotangent)
    exact = with_gradients(function, double(inputs), double(weights), cotangent)
    for result, wanted in zip(results, exact, strict=True):
        assert result.dtype == torch.float32
        assert result.shape == wanted.shape
        if wanted.numel():
            assert (result - wanted).abs().max() <= FLOAT32 * wanted.abs().max()


def test_rows_of_a_state(device):
    """The first rows of each atom, which are not next to those of the following atom."""
    _, weights = balanced_problem(1, 4, 16, device)
    state, cotangent = random(6, 9, 16, device=device), random(6, 4, 16, device=device)
    expected = with_gradients(balanced, [state[:, :4].contiguous()], weights, cotangent)
    results = with_gradients(balanced, [state[:, :4]], weights, cotangent)
    assert all(map(torch.equal, results, expected))


@pytest.mark.parametrize("name", CASES)
def test_poisoned_surroundings_and_outputs(name, device):
    function, inputs, weights, cotangent = case(name, (5, 4, 24), device)
    before = [x.clone() for x in (*inputs, *weights)]
    expected = with_gradients(function, inputs, weights, cotangent)
    with poisoned_new_tensors():
        results = with_gradients(
            function,
            list(map(surrounded, inputs)),
            list(map(surrounded, weights)),
            surrounded(cotangent),
        )
    for result, wanted in zip(results, expected, strict=True):
        assert torch.equal(result, wanted)
    assert all(map(torch.equal, [*inputs, *weights], before))


@pytest.mark.parametrize("name", CASES)
def test_layout_in_memory_does_not_matter(name, device):
    function, inputs, weights, cotangent = case(name, (5, 4, 24), device)
    expected = with_gradients(function, inputs, weights, cotangent)
    turned = [x.mT.contiguous().mT if x.ndim > 2 else x for x in (*inputs, cotangent)]
    results = with_gradients(function, turned[:-1], weights, turned[-1])
    assert all(map(torch.equal, results, expected))


@pytest.mark.parametrize("name", CASES)
def test_input_that_is_no_number_is_not_hidden(name, device):
    function, inputs, weights, _ = case(name, (2, 4, 16), device)
    inputs[0][:, :1, :1] = torch.nan
    assert not function(*inputs, *weights).isfinite().all()


@pytest.mark.parametrize("name", ["balanced", "streams"])
def test_gradients_of_weights_are_refused(name, device):
    function, inputs, weights, _ = case(name, (2, 4, 16), device)
    weights[0].requires_grad_()
    out = function(inputs[0].clone().requires_grad_(), *weights)
    with pytest.raises(RuntimeError, match="no gradients of weights"):
        torch.autograd.grad(out.sum(), weights[0])


@pytest.mark.parametrize("name", CASES)
def test_second_derivatives_are_refused(name, device):
    function, inputs, weights, _ = case(name, (2, 4, 16), device)
    leaf = inputs[0].detach().requires_grad_()
    out = function(leaf, *inputs[1:], *weights)
    (first,) = torch.autograd.grad(out.square().sum(), leaf, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(first.sum(), leaf)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_in_forward_mode_are_refused(name, device):
    function, inputs, weights, _ = case(name, (2, 4, 16), device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(inputs[0], torch.ones_like(inputs[0]))
        with pytest.raises(RuntimeError, match="forward mode"):
            function(dual, *inputs[1:], *weights)


@pytest.mark.parametrize("name", CASES)
def test_operator_is_registered_completely(name, device):
    operators = {
        "balanced": norm_operators._balanced_norm,
        "streams": norm_operators._stream_norm,
        "path": path_operators._scalar_path,
    }
    _, inputs, weights, _ = case(name, (2, 4, 16), device)
    inputs = [x.detach().requires_grad_() for x in inputs]
    further = [] if name == "path" else [EPS]
    torch.library.opcheck(operators[name], (*inputs, *weights, *further))


REFUSED = {
    "balance": partial(balanced_norm, random(2, 4, 16), random(3), random(4, 16)),
    "scale": partial(stream_norm, random(2, 4, 16), random(3, 16)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tensors_that_do_not_fit_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be float32"):
        REFUSED[name](*([random(1, 16)] if name == "balance" else []), EPS)


def test_scalars_of_another_width_are_refused(device):
    tensors = [random(*s, device=device) for s in ((2, 4, 3, 16), (2, 16), (2, 16))]
    with pytest.raises(ValueError, match=r"scalars must be float32 \(B, 2 C\)"):
        scalar_path(*tensors)
