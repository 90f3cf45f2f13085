"""Tables of an embedding net: quintic Hermite interpolation in float64.

Each row of a table reproduces the net's value and its first and second derivatives at
both borders of the row, so that the spline has two continuous derivatives. The error of
the value falls with the sixth power of the row's width.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import grad

from .domain import Domain

__all__ = ["build_table", "one_sided_range", "two_sided_range"]

Embedding = Callable[[Tensor], Tensor]


def build_table(
    embedding: Embedding, domain: Domain, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Tabulate a function of one scalar with K values.

    Args:
        embedding: maps (n, 1) to (n, K), each row by itself, in float64 on the CPU; built
            of operations that PyTorch can differentiate.
        domain: where the rows lie.
        dtype: of the result, which is computed in float64 and rounded once.

    Returns:
        Coefficients (rows, 6 K), coefficient p of channel k in column 6 k + p, and the
        six numbers of the domain (6,).

    Raises:
        ValueError: the function has another shape or dtype, or is not finite somewhere.
    """
    nodes = domain.nodes()
    value, first, second = _derivatives(embedding, nodes[:, None])
    coefficients = _hermite(value, first, second, nodes.diff()[:, None])
    table = torch.stack(coefficients, -1).reshape(domain.rows, -1)
    return table.to(dtype), domain.info(dtype)


def one_sided_range(mean: Tensor, stddev: Tensor, peak: float) -> tuple[float, float]:
    """Range of (s - mean) / stddev for s from 0 to ``peak``, rounded to whole numbers.

    Args:
        mean: normalisation of the environment matrix, of all types that share the table,
            any shape.
        stddev: its scale, same shape.
        peak: largest radial component before normalisation, w(r) / r at the shortest
            distance between neighbours, 1/A.

    Returns:
        Lower and upper edge of the fine region.
    """
    bounds = torch.stack([-mean / stddev, (peak - mean) / stddev])
    return float(bounds.min().floor()), float(bounds.max().ceil())


def two_sided_range(stddev: Tensor, peak: float) -> tuple[float, float]:
    """Range of inner products of two normalised neighbour vectors, in whole numbers.

    Args:
        stddev: scale of the environment matrix, of the types of *all* centre atoms whose
            neighbours look up the table, any shape.
        peak: as for :func:`one_sided_range`.

    Returns:
        Lower and upper edge of the fine region; they are opposite.
    """
    upper = float(((peak / stddev) ** 2).max().ceil())
    return -upper, upper


def _derivatives(embedding: Embedding, x: Tensor) -> list[Tensor]:
    """Value and first and second derivative by x, each (n, K)."""
    with torch.enable_grad():
        x = x.requires_grad_()
        value = embedding(x)
        _check_result(value, x.shape[0])
        first = _slope(value, x)
        second = _slope(first, x)
    parts = [part.detach() for part in (value, first, second)]
    if not all(part.isfinite().all() for part in parts):
        raise ValueError(
            "the function to tabulate, or one of its first two derivatives, is not "
            "finite everywhere on the domain"
        )
    return parts


def _slope(y: Tensor, x: Tensor) -> Tensor:
    """Derivative of every column of y (n, K) by x (n, 1).

    The product of a cotangent u with the derivative is linear in u; its derivative by u
    is the derivative asked for. So two backward passes do for any number of columns.
    """
    if not y.requires_grad:
        return torch.zeros_like(y)
    u = torch.ones_like(y).requires_grad_()
    (product,) = grad(y, x, u, create_graph=True, materialize_grads=True)
    if not product.requires_grad:
        return torch.zeros_like(y)
    return grad(product.sum(), u, create_graph=True)[0]


def _check_result(value: Tensor, count: int) -> None:
    if value.dtype != torch.float64:
        raise ValueError(
            f"the function to tabulate must compute in float64, but gave {value.dtype}; "
            "convert a net with net.double()"
        )
    if value.ndim != 2 or value.shape[0] != count:
        raise ValueError(
            f"the function to tabulate must map ({count}, 1) to ({count}, K), but gave "
            f"{tuple(value.shape)}"
        )


def _hermite(v: Tensor, d: Tensor, c: Tensor, t: Tensor) -> list[Tensor]:
    """Coefficients of the quintics with value v, slope d and curvature c at the nodes.

    Args:
        v: (rows + 1, K).
        d: (rows + 1, K).
        c: (rows + 1, K).
        t: widths of the rows, (rows, 1).

    Returns:
        Six of (rows, K).
    """
    h = v[1:] - v[:-1]
    d0, d1, c0, c1 = d[:-1], d[1:], c[:-1], c[1:]
    return [
        v[:-1],
        d0,
        c0 / 2,
        (20 * h - (8 * d1 + 12 * d0) * t - (3 * c0 - c1) * t**2) / (2 * t**3),
        (-30 * h + (14 * d1 + 16 * d0) * t + (3 * c0 - 2 * c1) * t**2) / (2 * t**4),
        (12 * h - 6 * (d1 + d0) * t + (c1 - c0) * t**2) / (2 * t**5),
    ]
