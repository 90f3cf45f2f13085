"""Radial features of edges, on a CUDA device or interpreted."""

from math import pi

import pytest
import torch
from dp_calc.kernels.radial import RadialTables, operators, radial_features, reference
from torch.autograd import forward_ad

from .poison import poisoned_new_tensors, surrounded

pytestmark = pytest.mark.gpu

ROUNDING = 2e-6
RCUT = 6.0
NETWORKS = {  # basis, hidden, features, biases, norm, vanishing
    "neo": (16, 32, 32, False, True, True),
    "odd": (10, 20, 80, True, False, True),
    "seed": (20, 64, 48, True, True, False),
}


def vectors(n_edges, device="cpu"):
    """Of lengths up to the cutoff; the first is at it and the second beyond."""
    generator = torch.Generator().manual_seed(3)
    vec = torch.randn(n_edges, 3, generator=generator, dtype=torch.float64)
    length = 0.6 + (RCUT - 0.7) * torch.rand(n_edges, 1, generator=generator).double()
    length[:2] = torch.tensor([[RCUT], [2 * RCUT]])[:n_edges]
    return (vec / vec.norm(dim=1, keepdim=True) * length).to(device)


def tables(name, dtype, device="cpu"):
    n_basis, n_hidden, n_features, biased, normed, vanishing = NETWORKS[name]
    generator = torch.Generator().manual_seed(1)

    def random(*shape, scale=1.0):
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (drawn * scale).float().to(dtype).to(device)

    frequencies = torch.arange(1, n_basis + 1) * pi / RCUT
    return RadialTables(
        frequencies.float().to(dtype).to(device),
        random(n_basis, n_hidden, scale=n_basis**-0.5),
        random(n_hidden) if biased else None,
        random(n_hidden) if normed else None,
        random(n_hidden, n_features, scale=n_hidden**-0.5),
        random(n_features) if biased else None,
        (RCUT, RCUT),
        (7, 5),
        1e-7,
        1e-7,
        vanishing,
    )


def with_gradient(function, vec, known, cotangents):
    leaf = vec.detach().requires_grad_()
    results = function(leaf, known)
    cotangents = [c.to(results[0].dtype) for c in cotangents]
    (grad,) = torch.autograd.grad(results, leaf, cotangents)
    return *(x.detach() for x in results), grad


@pytest.mark.parametrize(
    ("n_edges", "name"), [(0, "neo"), (1, "neo"), (31, "seed"), (32, "odd"), (70, "neo")]
)
def test_numbers(n_edges, name, device):
    vec = vectors(n_edges, device)
    generator = torch.Generator().manual_seed(5)
    shapes = [(n_edges, NETWORKS[name][2]), (n_edges,)]
    cotangents = [torch.randn(s, generator=generator).to(device) for s in shapes]
    known = tables(name, torch.float32, device)
    results = with_gradient(radial_features, vec, known, cotangents)
    exact = tables(name, torch.float64, device)
    expected = with_gradient(reference.radial_features, vec, exact, cotangents)
    for result, right in zip(results, expected, strict=True):
        assert result.shape == right.shape
        if right.numel():
            assert (result - right).abs().max() <= ROUNDING * right.abs().max()


@pytest.mark.parametrize("name", ["neo", "odd"])
def test_nothing_at_the_cutoff_and_beyond(name, device):
    vec = vectors(2, device).requires_grad_()
    features, envelope = radial_features(vec, tables(name, torch.float32, device))
    (grad,) = torch.autograd.grad(features.sum() + envelope.sum(), vec)
    assert envelope.abs().max() < 1e-20
    assert features[1].eq(0).all()
    assert grad[1].eq(0).all()


def test_poisoned_surroundings_and_non_contiguous_vectors(device):
    vec, known = vectors(37, device), tables("neo", torch.float32, device)
    expected = radial_features(vec, known)
    with poisoned_new_tensors():
        for given in (surrounded(vec), vec.T.contiguous().T):
            for result, right in zip(
                radial_features(given, known), expected, strict=True
            ):
                assert torch.equal(result, right)


def test_second_derivatives_and_those_of_weights_are_refused(device):
    vec, known = vectors(5, device).requires_grad_(), tables("neo", torch.float32, device)
    out = radial_features(vec, known)[0].sum()
    (grad,) = torch.autograd.grad(out, vec, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(grad.sum(), vec)
    known.out.requires_grad_()
    out = radial_features(vec, known)[0].sum()
    with pytest.raises(RuntimeError, match="no gradients of weights"):
        torch.autograd.grad(out, known.out)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="forward mode"):
        radial_features(forward_ad.make_dual(vec.detach(), torch.ones_like(vec)), known)


def test_operators_are_registered_completely(device):
    known = tables("neo", torch.float32, device)
    rest = (*known.tensors, *known.numbers)
    vec = vectors(5, device)
    torch.library.opcheck(operators._radial, (vec.requires_grad_(), *rest))
    grads = torch.ones(5, 32, device=device), torch.ones(5, device=device)
    torch.library.opcheck(operators._radial_backward, (*grads, vec.detach(), *rest))
