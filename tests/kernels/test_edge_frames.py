"""Rotations into the frames of edges, on a CUDA device or interpreted."""

import pytest
import torch
from dp_calc.kernels.edge_frames import FrameTables, edge_frames, operators, reference
from dp_calc.models.dpa4.fused_geometry import frame_tables
from torch.autograd import forward_ad

from .poison import poisoned_new_tensors, surrounded

pytestmark = pytest.mark.gpu

ROUNDING = 2e-6
POLES = torch.tensor([[0, 0, 2.0], [0, 0, -2.0], [1e-6, 0, -3.0], [2.0, 0, -1.0]])


def vectors(n_edges, device="cpu", seed=3):
    """Along the poles, between the charts of the frame, and anywhere else."""
    generator = torch.Generator().manual_seed(seed)
    anywhere = torch.randn(max(n_edges - 4, 0), 3, generator=generator)
    return torch.cat([POLES, anywhere])[:n_edges].double().to(device)


def tables(lmax, dtype, device="cpu"):
    made = frame_tables(lmax, 1e-7, dtype)
    tensors = (made.powers, made.coefficients, made.step)
    return FrameTables(*(x.to(device) for x in tensors), made.eps)


def with_gradient(function, vec, known, cotangent):
    leaf = vec.detach().requires_grad_()
    out = function(leaf, known)
    (grad,) = torch.autograd.grad(out, leaf, cotangent.to(out.dtype))
    return out.detach(), grad


def check(vec, lmax):
    generator = torch.Generator().manual_seed(5)
    shape = (len(vec), 3, (lmax + 1) ** 2)
    cotangent = torch.randn(shape, generator=generator).to(vec.device)
    known = tables(lmax, torch.float32, vec.device)
    exact = tables(lmax, torch.float64, vec.device)
    results = with_gradient(edge_frames, vec, known, cotangent)
    expected = with_gradient(reference.edge_frames, vec.double(), exact, cotangent)
    assert results[0].dtype == torch.float32
    assert results[1].dtype == vec.dtype
    for result, right in zip(results, expected, strict=True):
        assert result.shape == right.shape
        if right.numel():
            assert (result - right).abs().max() <= ROUNDING * right.abs().max()


@pytest.mark.parametrize(("n_edges", "lmax"), [(0, 3), (1, 1), (33, 2), (32, 3), (31, 4)])
def test_numbers(n_edges, lmax, device):
    check(vectors(n_edges, device), lmax)


def test_vectors_in_float32(device):
    check(vectors(20, device).float(), 2)


def test_poisoned_surroundings_and_non_contiguous_vectors(device):
    vec, known = vectors(37, device), tables(2, torch.float32, device)
    expected = edge_frames(vec, known)
    with poisoned_new_tensors():
        for given in (surrounded(vec), vec.T.contiguous().T):
            assert torch.equal(edge_frames(given, known), expected)


def test_second_derivatives_and_those_of_tables_are_refused(device):
    vec, known = vectors(5, device).requires_grad_(), tables(1, torch.float32, device)
    (grad,) = torch.autograd.grad(edge_frames(vec, known).sum(), vec, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(grad.sum(), vec)
    known.coefficients.requires_grad_()
    with pytest.raises(RuntimeError, match="no gradients of weights"):
        torch.autograd.grad(edge_frames(vec, known).sum(), known.coefficients)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="forward mode"):
        edge_frames(forward_ad.make_dual(vec.detach(), torch.ones_like(vec)), known)


def test_operators_are_registered_completely(device):
    vec, known = vectors(5, device), tables(1, torch.float32, device)
    rest = (known.powers, known.coefficients, known.step, known.eps)
    torch.library.opcheck(operators._edge_frames, (vec.requires_grad_(), *rest))
    grad = torch.ones(5, 3, 4, device=device)
    torch.library.opcheck(operators._edge_frames_backward, (grad, vec.detach(), *rest))
