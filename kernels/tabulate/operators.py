"""The five tabulated embedding operators.

An embedding net of one scalar is replaced by a table of polynomials, the spline g_k with
K channels. In what follows x is ``em_x``; all tensors but ``info`` share the table's
dtype (float32 or float64) and device. ``info`` holds the six numbers of the table's
domain, on the CPU (:meth:`Domain.info`); the domain is two-sided for :func:`se_t` and
:func:`se_t_tebd` and one-sided for the others. Empty axes are allowed. NaN in gives NaN
out.

Every operator can be differentiated any number of times by every input of floating point
numbers. Only plain PyTorch differentiates the table.

``kernels`` says what runs: ``"torch"`` is plain PyTorch; ``"triton"`` is fused kernels,
which do not store g for every neighbour; ``"auto"`` is the latter on a CUDA device if the
table does not ask for a gradient. Both sum in a fixed order.

Every operator raises ``ValueError`` if tensors do not fit together, if the rows of the
table do not fit its domain, or if ``"triton"`` cannot run what is asked.
"""

from torch import Tensor

from .checks import (
    check_basis,
    check_count,
    check_dimensions,
    check_rows,
    check_table,
    check_tensors,
)
from .fold import tail_fold
from .select import choose

__all__ = ["se_a", "se_atten", "se_r", "se_t", "se_t_tebd"]


def se_a(
    table: Tensor,
    info: Tensor,
    em_x: Tensor,
    em: Tensor,
    K: int,
    *,
    kernels: str = "auto",
) -> Tensor:
    """y_imk = sum_j em_ijm g_k(x_ij), with the padding of a sorted list folded.

    Args:
        table: (rows, 6 K), coefficient p of channel k in column 6 k + p.
        info: (6,).
        em_x: spline arguments, nloc * nnei numbers, normally (nloc * nnei, 1).
        em: environment basis, (nloc, nnei, M), M in 4, 9, 16, 25.
        K: number of channels.
        kernels: ``"auto"``, ``"torch"`` or ``"triton"``.

    Returns:
        (nloc, M, K).
    """
    check_table(table, info, K)
    check_tensors(table, em_x=em_x, em=em)
    check_basis(em)
    check_count(em_x, em, axes=2)
    x = em_x.reshape(em.shape[:2])
    path = choose(kernels, table, x, em)
    return path.contract(table, info, x, em, None, tail_fold(x, em), False)


def se_atten(
    table: Tensor,
    info: Tensor,
    em_x: Tensor,
    em: Tensor,
    two_embed: Tensor,
    K: int,
    is_sorted: bool,
    *,
    kernels: str = "auto",
) -> Tensor:
    """y_imk = sum_j em_ijm (1 + two_embed_ijk) g_k(x_ij).

    Args:
        table: (rows, 6 K), coefficient p of channel k in column 6 k + p.
        info: (6,).
        em_x: spline arguments, nloc * nnei numbers, normally (nloc * nnei, 1).
        em: environment basis, (nloc, nnei, M), M in 4, 9, 16, 25.
        two_embed: factor of the two types, (nloc * nnei, K).
        K: number of channels.
        is_sorted: fold the padding at the end of each neighbour list. Its slots must be
            alike in all inputs, or real neighbours are lost (:func:`fold.tail_fold`).
        kernels: ``"auto"``, ``"torch"`` or ``"triton"``.

    Returns:
        (nloc, M, K).
    """
    check_table(table, info, K)
    check_tensors(table, em_x=em_x, em=em, two_embed=two_embed)
    check_basis(em)
    check_count(em_x, em, axes=2)
    check_rows(two_embed, em, K)
    x = em_x.reshape(em.shape[:2])
    two_embed = two_embed.reshape(*em.shape[:2], K)
    stop = tail_fold(x, em) if is_sorted else None
    path = choose(kernels, table, x, em, two_embed)
    return path.contract(table, info, x, em, two_embed, stop, False)


def se_t(
    table: Tensor,
    info: Tensor,
    em_x: Tensor,
    em: Tensor,
    K: int,
    *,
    kernels: str = "auto",
) -> Tensor:
    """y_ik = sum_jl em_ijl g_k(x_ijl).

    Args:
        table: (rows, 6 K), coefficient p of channel k in column 6 k + p; two-sided.
        info: (6,).
        em_x: spline arguments, nloc * ni * nj numbers, normally (nloc * ni * nj, 1).
        em: inner products of neighbour directions, (nloc, ni, nj).
        K: number of channels.
        kernels: ``"auto"``, ``"torch"`` or ``"triton"``.

    Returns:
        (nloc, K).
    """
    check_table(table, info, K)
    check_tensors(table, em_x=em_x, em=em)
    check_dimensions(em, "em", ("nloc", "ni", "nj"))
    check_count(em_x, em, axes=3)
    pairs = (em.shape[0], em.shape[1] * em.shape[2])
    x, em = em_x.reshape(pairs), em.reshape(*pairs, 1)
    path = choose(kernels, table, x, em)
    return path.contract(table, info, x, em, None, None, True).squeeze(1)


def se_t_tebd(
    table: Tensor,
    info: Tensor,
    em_x: Tensor,
    em: Tensor,
    K: int,
    *,
    kernels: str = "auto",
) -> Tensor:
    """y_ijlk = g_k(x_ijl).

    Args:
        table: (rows, 6 K), coefficient p of channel k in column 6 k + p; two-sided.
        info: (6,).
        em_x: spline arguments, nloc * ni * nj numbers, normally (nloc * ni * nj, 1).
        em: gives the shape, (nloc, ni, nj); its numbers are not used.
        K: number of channels.
        kernels: ``"auto"``, ``"torch"`` or ``"triton"``.

    Returns:
        (nloc, ni, nj, K).
    """
    check_table(table, info, K)
    check_tensors(table, em_x=em_x, em=em)
    check_dimensions(em, "em", ("nloc", "ni", "nj"))
    check_count(em_x, em, axes=3)
    path = choose(kernels, table, em_x)
    return path.evaluate(table, info, em_x.reshape(em.shape), True)


def se_r(
    table: Tensor, info: Tensor, em: Tensor, K: int, *, kernels: str = "auto"
) -> Tensor:
    """y_ijk = g_k(em_ij).

    Args:
        table: (rows, 6 K), coefficient p of channel k in column 6 k + p.
        info: (6,).
        em: spline arguments, (nloc, nnei).
        K: number of channels.
        kernels: ``"auto"``, ``"torch"`` or ``"triton"``.

    Returns:
        (nloc, nnei, K).
    """
    check_table(table, info, K)
    check_tensors(table, em=em)
    check_dimensions(em, "em", ("nloc", "nnei"))
    path = choose(kernels, table, em)
    return path.evaluate(table, info, em, False)
