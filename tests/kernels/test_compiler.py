"""Kernels of edge vectors and of atoms get through the compiler; no GPU is needed."""

import pytest
import torch
from dp_calc.models.dpa4.fused_geometry import frame_tables

from .compiler import kernels_compiled_only
from .test_norms import CASES, case, with_gradients
from .test_radial import tables, vectors

SHARED_MEMORY = 227 * 1024
"""Bytes that a program can have on an H200."""


def check(evaluate, n_kernels):
    """Its results are never written and not looked at."""
    vec = vectors(64).requires_grad_()
    with kernels_compiled_only() as compiled:
        torch.autograd.grad(sum(x.sum() for x in evaluate(vec)), vec)
    assert len({name for name, _ in compiled}) == n_kernels
    assert max(size for _, size in compiled) <= SHARED_MEMORY


def test_frames():
    from dp_calc.kernels.edge_frames import edge_frames

    known = frame_tables(3, 1e-7, torch.float32)
    check(lambda vec: [edge_frames(vec, known)], n_kernels=2)


def test_radial_features():
    from dp_calc.kernels.radial import radial_features

    known = tables("neo", torch.float32)
    check(lambda vec: radial_features(vec, known), n_kernels=2)


@pytest.mark.parametrize("name", CASES)
def test_norms_and_scalar_path(name):
    with kernels_compiled_only() as compiled:
        with_gradients(*case(name, (5, 25, 96), "cpu"))
    assert len({kernel for kernel, _ in compiled}) == 2
    assert max(size for _, size in compiled) <= SHARED_MEMORY
