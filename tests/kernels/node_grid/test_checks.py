"""What needs no kernel: matrices, the plain form, refusals before anything runs."""

import pytest
import torch
from dp_calc.kernels.node_grid import grid_matrices, grid_product, reference
from dp_calc.kernels.products import PRECISIONS
from torch.autograd import gradcheck, gradgradcheck

from .problems import random_problem


def test_plain_form_has_all_derivatives():
    generator = torch.Generator().manual_seed(3)
    shapes = ((7, 4), (4, 7), (2, 4, 3), (2, 4, 3))
    tensors = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    tensors = [x.requires_grad_() for x in tensors]

    def product(synthesis, analysis, left, right):
        matrices = grid_matrices(synthesis, analysis, "ieee")
        return reference.grid_product(left, right, matrices)

    assert gradcheck(product, tensors)
    assert gradgradcheck(product, tensors)


def test_plain_form_is_the_sum_over_points():
    problem = random_problem(2, 5, 11, 3)
    (left, right), matrices = problem.fields, problem.matrices
    to_grid = [torch.einsum("gk,bkc->bgc", matrices.synthesis, x) for x in (left, right)]
    expected = torch.einsum("kg,bgc,bgc->bkc", matrices.analysis, *to_grid)
    torch.testing.assert_close(reference.grid_product(left, right, matrices), expected)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_parts_add_up_to_the_padded_matrices(precision):
    matrices = random_problem(1, 27, 104, 1, precision).matrices
    scale = 2.0**-11 if precision == "fp16x3" else 1.0  # of the second part
    pairs = ((matrices.to_grid, False), (matrices.from_grid, True))
    for tables, swapped in pairs:
        wanted = (matrices.synthesis, matrices.analysis.T)
        wanted = [x.T for x in reversed(wanted)] if swapped else wanted
        for table, matrix in zip(tables, wanted, strict=True):
            weights = [1.0, *[scale] * (len(table) - 1)]
            total = sum(w * part.double() for w, part in zip(weights, table, strict=True))
            assert (total.shape[0] % 64, total.shape[1] % 64) == (0, 0)
            rows, columns = matrix.shape
            torch.testing.assert_close(
                total[:rows, :columns], matrix.double(), rtol=2e-7, atol=1e-10
            )
            assert not total[rows:].any()
            assert not total[:, columns:].any()


def test_unfit_matrices_are_refused():
    synthesis, analysis = torch.ones(7, 4), torch.ones(4, 7)
    with pytest.raises(ValueError, match=r"must be one of ieee, .* not 'fp8'"):
        grid_matrices(synthesis, analysis, "fp8")
    with pytest.raises(ValueError, match=r"must be \(G, K\) and \(K, G\)"):
        grid_matrices(synthesis, synthesis, "ieee")


@pytest.mark.usefixtures("plain")
def test_tensors_on_the_cpu_are_refused():
    problem = random_problem(1, 4, 7, 2)
    with pytest.raises(ValueError, match="on a CUDA device, these are on cpu"):
        grid_product(*problem.fields, problem.matrices)
