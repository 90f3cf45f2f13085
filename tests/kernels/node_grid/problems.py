"""Random fields and matrices, the float64 answer, and how far a result is from it."""

from dataclasses import dataclass

import torch
from dp_calc.kernels.node_grid import GridMatrices, grid_matrices, grid_product, reference
from torch import Tensor


@dataclass(frozen=True)
class Problem:
    """Two fields (B, K, C), a cotangent, and a grid of G points."""

    fields: tuple[Tensor, Tensor]
    cotangent: Tensor
    matrices: GridMatrices

    def results(self) -> tuple[Tensor, ...]:
        """The product and the gradients of both fields."""
        return _with_gradients(grid_product, self.fields, self.cotangent, self.matrices)

    def expected(self) -> tuple[Tensor, ...]:
        """The same in float64 without kernels."""
        fields = [x.detach().double() for x in self.fields]
        exact = [x.double() for x in (self.matrices.synthesis, self.matrices.analysis)]
        matrices = grid_matrices(*exact, "ieee")
        cotangent = self.cotangent.double()
        return _with_gradients(reference.grid_product, fields, cotangent, matrices)


def random_problem(
    n_nodes, n_coefficients, n_points, channels, precision="ieee", device="cpu"
) -> Problem:
    generator = torch.Generator().manual_seed(n_nodes + n_points)

    def random(*shape):
        return torch.randn(shape, generator=generator).to(device)

    shape = (n_nodes, n_coefficients, channels)
    synthesis = random(n_points, n_coefficients)
    analysis = random(n_coefficients, n_points) / n_points
    matrices = grid_matrices(synthesis, analysis, precision)
    return Problem((random(*shape), random(*shape)), random(*shape), matrices)


def deviation(result: Tensor, expected: Tensor) -> float:
    """Largest difference relative to the largest number."""
    assert result.shape == expected.shape
    if not expected.numel():
        return 0.0
    return ((result.double() - expected).abs().max() / expected.abs().max()).item()


def _with_gradients(function, fields, cotangent, matrices):
    left, right = (x.detach().requires_grad_() for x in fields)
    out = function(left, right, matrices)
    return out.detach(), *torch.autograd.grad(out, (left, right), cotangent)
