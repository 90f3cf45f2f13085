"""The tabulated operators in plain PyTorch: every order of derivative, every input.

A table holds one polynomial of degree five per row and channel; coefficient p of channel
k is column 6 k + p, and tau is measured from the left border of the row. Beyond its ends
the spline goes on as a straight line:

    g_k(x) = P_k(tau) + P_k'(tau) delta
"""

from functools import partial

import torch
from torch import Tensor

from ..segment import gather
from .domain import Domain

__all__ = ["contract", "evaluate", "locate", "spline"]

COEFFICIENTS = 6
"""Coefficients of a polynomial of degree five."""


def contract(
    table: Tensor,
    info: Tensor,
    x: Tensor,
    em: Tensor,
    two_embed: Tensor | None,
    stop: Tensor | None,
    two_sided: bool,
) -> Tensor:
    """Sum over neighbours j: w_ij em_ijm (1 + two_embed_ijk) g_k(x_ij).

    Args:
        table: coefficients, (rows, 6 K).
        info: the six numbers of the domain, (6,), on the CPU.
        x: spline arguments, (nloc, nnei).
        em: (nloc, nnei, M).
        two_embed: (nloc, nnei, K), or None for zeros.
        stop: folded slot of each atom, (nloc,), from :func:`fold.tail_fold`; None: w = 1.
        two_sided: kind of the domain.

    Returns:
        (nloc, M, K).
    """
    g = evaluate(table, info, x, two_sided)
    if two_embed is not None:
        g = g * (1 + two_embed)
    if stop is not None:
        em = em * _fold_weights(stop, em)[..., None]
    return torch.einsum("ijm,ijk->imk", em, g)


def evaluate(table: Tensor, info: Tensor, x: Tensor, two_sided: bool) -> Tensor:
    """g_k(x) of every element of x, x.shape + (K,)."""
    domain = Domain.from_info(info, two_sided, table.shape[0])
    return spline(table, domain, x)


def spline(table: Tensor, domain: Domain, x: Tensor) -> Tensor:
    """g_k(x) of every element of x, x.shape + (K,)."""
    row, tau, delta = locate(x.reshape(-1, 1), domain)
    c = _coefficients(table, row.flatten())
    slope = [p * c[p] for p in range(1, COEFFICIENTS)]
    value = _horner(c, tau) + _horner(slope, tau) * delta
    return value.reshape(*x.shape, value.shape[1])


def locate(x: Tensor, domain: Domain) -> tuple[Tensor, Tensor, Tensor]:
    """Row, local coordinate tau and overhang delta of every element of x.

    The arithmetic is that of the dtype of x. A NaN gets some row of the table and a NaN
    as tau. The gradient of x runs through tau inside the domain, through delta outside.
    """
    outside = (x < domain.left) | (x >= domain.right)
    nearest = torch.where(outside, x.detach().clamp(domain.left, domain.right), x)
    z = nearest.detach()
    in_wing, before_upper = z < domain.lower, z < domain.upper
    # masked_fill and not where: on a GPU, where copies its scalars there and waits.
    start = torch.full_like(z, domain.upper).masked_fill(before_upper, domain.lower)
    start = start.masked_fill(in_wing, domain.left)
    stride = torch.full_like(z, domain.coarse)
    stride = stride.masked_fill(before_upper & ~in_wing, domain.fine)
    first = torch.full_like(z, domain.wing + domain.middle, dtype=torch.int64)
    first = first.masked_fill(before_upper, domain.wing).masked_fill(in_wing, 0)
    # The quotient can round up to one row past the end.
    row = (first + ((z - start) / stride).long()).clamp(0, domain.rows - 1)
    tau = nearest - ((row - first).to(x.dtype) * stride + start)
    return row, tau, x - nearest


def _coefficients(table: Tensor, row: Tensor) -> list[Tensor]:
    """Coefficients 0..5 of the rows asked for, each (n, K)."""
    if table.requires_grad:
        order = torch.argsort(row, stable=True)
        count = torch.bincount(row, minlength=table.shape[0])
        ptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
        take = partial(gather, index=row, order=order, ptr=ptr)
    else:
        take = partial(torch.index_select, dim=0, index=row)
    return [take(table[:, p::COEFFICIENTS]) for p in range(COEFFICIENTS)]


def _horner(coefficients: list[Tensor], t: Tensor) -> Tensor:
    value = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        value = coefficient + value * t
    return value


def _fold_weights(stop: Tensor, em: Tensor) -> Tensor:
    """How often each slot counts, (nloc, nnei): 1, at ``stop`` the whole tail, then 0."""
    slot = torch.arange(em.shape[1], device=em.device)
    repeats = torch.where(slot == stop[:, None], em.shape[1] - slot, slot < stop[:, None])
    return repeats.to(em.dtype)
