"""One linear map per degree, on a CUDA device or interpreted."""

import pytest
import torch
from dp_calc.kernels.degree_linear import degree_linear, operators
from dp_calc.kernels.products import split
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from .poison import poisoned_new_tensors, surrounded

pytestmark = pytest.mark.gpu

FLOAT32 = 1e-6
SPLIT = ("ieee", "tf32x3", "bf16x6", "fp16x3")
SIZES = [  # nodes, degree, channels in and out
    (0, 3, 32, 32),
    (1, 0, 16, 16),
    (1, 1, 48, 16),
    (9, 3, 32, 64),
    (12, 2, 16, 96),
    (13, 2, 80, 32),
    (2, 4, 32, 144),
]


def random(*shape, device="cpu", seed=11):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(device)


def problem(n_nodes, lmax, n_in, n_out, device="cpu"):
    """Rows, weights and a cotangent."""
    n_packed = (lmax + 1) ** 2
    weight = random(lmax + 1, n_in, n_out, device=device) / n_in**0.5
    cotangent = random(n_nodes, n_packed, n_out, device=device)
    return random(n_nodes, n_packed, n_in, device=device, seed=12), weight, cotangent


def fused(x, weight, precision="ieee"):
    parts = split(weight, precision), split(weight.mT.contiguous(), precision)
    return degree_linear(x, *parts, precision)


def exact(x, weight):
    rows = x.split([2 * degree + 1 for degree in range(len(weight))], dim=1)
    return torch.cat([a @ w for a, w in zip(rows, weight.double(), strict=True)], dim=1)


def with_gradient(function, x, weight, cotangent, *options):
    leaf = x.detach().requires_grad_()
    out = function(leaf, weight, *options)
    return out.detach(), *torch.autograd.grad(out, leaf, cotangent)


def check(results, expected):
    for result, wanted in zip(results, expected, strict=True):
        assert result.shape == wanted.shape
        assert result.dtype == torch.float32
        if wanted.numel():
            error = (result.double() - wanted).abs().max()
            assert error <= FLOAT32 * wanted.abs().max()


def check_sizes(size, precision, device):
    x, weight, cotangent = problem(*size, device)
    results = with_gradient(fused, x, weight, cotangent, precision)
    check(results, with_gradient(exact, x.double(), weight, cotangent.double()))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(size, device):
    check_sizes(size, "ieee", device)


@pytest.mark.parametrize("n_nodes", [63, 64, 65])
def test_rows_around_a_block(n_nodes, device):
    check_sizes((n_nodes, 0, 16, 16), "bf16x6", device)


@pytest.mark.parametrize("precision", SPLIT)
def test_precisions(precision, device):
    check_sizes(SIZES[3], precision, device)


def test_second_derivatives_by_the_rows(device):
    x, weight, cotangent = problem(3, 2, 16, 32, device)

    def second(function, x, cotangent):
        leaves = [x.detach().requires_grad_(), cotangent.detach().requires_grad_()]
        energy = (function(leaves[0], weight) ** 3 * leaves[1]).sum()
        (first,) = torch.autograd.grad(energy, leaves[0], create_graph=True)
        return torch.autograd.grad(first.square().sum(), leaves)

    results = second(fused, x, cotangent)
    check(results, second(exact, x.double(), cotangent.double()))


@pytest.mark.parametrize("place", [0, 1])
def test_gradients_of_weights_are_refused(place, device):
    x, weight, _ = problem(2, 1, 16, 16, device)
    parts = [split(weight, "ieee"), split(weight.mT.contiguous(), "ieee")]
    parts[place].requires_grad_()
    for rows in (x, x.clone().requires_grad_()):
        out = degree_linear(rows, *parts, "ieee")
        with pytest.raises(RuntimeError, match="no gradients of weights"):
            torch.autograd.grad(out.sum(), parts[place])


def test_derivatives_in_forward_mode_are_refused(device):
    x, weight, _ = problem(2, 1, 16, 16, device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(RuntimeError, match="forward mode"):
            fused(dual, weight)


def test_poisoned_surroundings_and_outputs(device):
    tensors = problem(9, 2, 16, 32, device)
    before = [x.clone() for x in tensors]
    expected = with_gradient(fused, *tensors)
    with poisoned_new_tensors():
        results = with_gradient(fused, *map(surrounded, tensors))
    for result, wanted in zip(results, expected, strict=True):
        assert not result.isnan().any()
        assert torch.equal(result, wanted)
    assert all(map(torch.equal, tensors, before))


def test_layout_in_memory_does_not_matter(device):
    x, weight, cotangent = problem(5, 2, 16, 32, device)
    expected = with_gradient(fused, x, weight, cotangent)
    turned = [t.mT.contiguous().mT for t in (x, cotangent)]
    results = with_gradient(fused, turned[0], weight, turned[1])
    assert all(map(torch.equal, results, expected))


def test_operator_is_registered_completely(device):
    x, weight, _ = problem(3, 1, 16, 32, device)
    parts = split(weight, "bf16x6"), split(weight.mT.contiguous(), "bf16x6")
    torch.library.opcheck(
        operators._degree_linear, (x.requires_grad_(), *parts, "bf16x6")
    )


def test_a_trace_for_few_nodes_runs_any_number(device):
    def gradients(x, cotangent):
        return with_gradient(fused, x, weight, cotangent)

    x, weight, cotangent = problem(3, 1, 16, 32, device)
    trace = make_fx(gradients, tracing_mode="symbolic", _allow_non_fake_inputs=True)
    graph = trace(x, cotangent)
    assert any("degree_linear" in str(node.target) for node in graph.graph.nodes)
    for n_nodes in (1, 40):
        other, _, pulled = problem(n_nodes, 1, 16, 32, device)
        assert all(map(torch.equal, graph(other, pulled), gradients(other, pulled)))
