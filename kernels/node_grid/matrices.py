"""Matrices between coefficients and grid in the form in which the kernels read them."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..products import PRECISIONS, split

__all__ = ["PITCH", "GridMatrices", "grid_matrices"]

PITCH = 64
"""Both sides of a table are padded with zeros to a multiple of this, so that the kernels
need no masks there; the largest tile of a launch."""


@dataclass(frozen=True)
class GridMatrices:
    """Synthesis and analysis, each also in the parts that ``products.split`` makes.

    The tables are padded, transposed where the kernels sum along the other side: tensor
    cores read float32 numbers only along the sum.

    Attributes:
        precision: of the products, see ``products``.
        synthesis: values on the grid from coefficients, (G, K).
        analysis: coefficients from values on the grid, (K, G).
        to_grid: tables of ``synthesis`` and of ``analysis.T``, (2, parts, G', K').
        from_grid: tables of ``analysis`` and of ``synthesis.T``, (2, parts, K', G').
    """

    precision: str
    synthesis: Tensor
    analysis: Tensor
    to_grid: Tensor
    from_grid: Tensor


def grid_matrices(synthesis: Tensor, analysis: Tensor, precision: str) -> GridMatrices:
    """Pad, split and transpose both matrices.

    Args:
        synthesis: (G, K).
        analysis: (K, G), on the same device and of the same dtype.
        precision: one of ``products.PRECISIONS``.

    Raises:
        ValueError: if the shapes do not fit, or there is no such precision.
    """
    if precision not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise ValueError(f"precision must be one of {known}, not {precision!r}")
    if synthesis.dim() != 2 or analysis.shape != synthesis.T.shape:
        raise ValueError(
            f"synthesis {tuple(synthesis.shape)} and analysis {tuple(analysis.shape)} "
            "must be (G, K) and (K, G)"
        )
    to_grid = [_table(x, precision) for x in (synthesis, analysis.T)]
    from_grid = [_table(x, precision) for x in (analysis, synthesis.T)]
    return GridMatrices(
        precision, synthesis, analysis, torch.stack(to_grid), torch.stack(from_grid)
    )


def _table(matrix: Tensor, precision: str) -> Tensor:
    rows, columns = matrix.shape
    padded = F.pad(matrix.float(), (0, -columns % PITCH, 0, -rows % PITCH))
    return split(padded, precision)
