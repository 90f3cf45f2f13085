"""The three sums of the Triton kernels as operators of PyTorch.

They are derivatives of the form F that :mod:`.kernels` describes; their own derivatives
are registered by :mod:`.fused`.
"""

import torch
import triton
from torch import Tensor

from ..launch import launch
from .domain import Domain
from .kernels import (
    sum_channels_kernel,
    sum_components_kernel,
    sum_neighbors_kernel,
)

__all__ = [
    "INTERPRETED",
    "sum_channels",
    "sum_components",
    "sum_neighbors",
]

INTERPRETED = not isinstance(sum_neighbors_kernel, triton.JITFunction)
"""Whether TRITON_INTERPRET was set on import, so that the kernels run on the CPU."""

_CHUNK = 512
"""Slots that one program sums. Longer rows are split, so that few atoms with many slots
(three-body terms) still fill the device."""

_WARPS = 4
_THREADS = 32 * _WARPS  # a thread holds 4 elements of a tile and 16 or 32 running totals


@torch.library.custom_op("dp_calc::tabulate_sum_neighbors", mutates_args=())
def sum_neighbors(
    planes: Tensor,
    info: Tensor,
    x: Tensor,
    a: Tensor,
    f: Tensor | None,
    stop: Tensor | None,
    low: int,
    two_sided: bool,
    plus_one: bool,
) -> Tensor:
    """dF/du: sum_jd w_ij a_ijdm f_ijk g_k^(low + d)(x_ij), (nloc, M, K).

    Args:
        planes: coefficients, (rows, 6, K).
        info: the six numbers of the domain, (6,), on the CPU.
        x: (nloc, nnei).
        a: (nloc, nnei, orders, M).
        f: (nloc, nnei, K), or None for ones.
        stop: folded slot of each atom, (nloc,), or None.
        low: lowest order of derivative of the spline.
        two_sided: kind of the domain.
        plus_one: take 1 + f in place of f.
    """
    nloc, nnei, orders, m = a.shape
    channels = planes.shape[2]
    splits = max(1, triton.cdiv(nnei, _CHUNK))
    block_k = min(128, triton.next_power_of_2(channels))
    out = x.new_empty(nloc, splits, m, channels)
    _launch(
        sum_neighbors_kernel,
        nloc * splits * triton.cdiv(channels, block_k),
        (out, planes, x, a, f, stop, nnei, splits),
        Domain.from_info(info, two_sided, planes.shape[0]),
        LOW=low,
        ORDERS=orders,
        M=m,
        K=channels,
        PLUS_ONE=plus_one,
        CHUNK=_CHUNK,
        BLOCK_J=_slots(4 * _THREADS // block_k, 16 * _THREADS // (block_k * m)),
        BLOCK_K=block_k,
    )
    return out.sum(1) if splits > 1 else out.reshape(nloc, m, channels)


@torch.library.custom_op("dp_calc::tabulate_sum_channels", mutates_args=())
def sum_channels(
    planes: Tensor,
    info: Tensor,
    x: Tensor,
    f: Tensor | None,
    u: Tensor | None,
    stop: Tensor | None,
    low: int,
    orders: int,
    two_sided: bool,
    plus_one: bool,
) -> Tensor:
    """dF/da: w_ij sum_k f_ijk u_imk g_k^(low + d)(x_ij), (nloc, nnei, orders, M).

    Args:
        planes: coefficients, (rows, 6, K).
        info: the six numbers of the domain, (6,), on the CPU.
        x: (nloc, nnei).
        f: (nloc, nnei, K), or None for ones.
        u: (nloc, M, K), or None for ones and M = 1.
        stop: folded slot of each atom, (nloc,), or None.
        low: lowest order of derivative of the spline.
        orders: number of orders.
        two_sided: kind of the domain.
        plus_one: take 1 + f in place of f.
    """
    (nloc, nnei), m = x.shape, _components(u)
    channels = planes.shape[2]
    block_k = min(32, triton.next_power_of_2(channels))
    block_j = _slots(4 * _THREADS // block_k, 32 * _THREADS // (block_k * m * orders))
    out = x.new_empty(nloc, nnei, orders, m)
    _launch(
        sum_channels_kernel,
        nloc * triton.cdiv(nnei, block_j),
        (out, planes, x, f, u, stop, nnei),
        Domain.from_info(info, two_sided, planes.shape[0]),
        LOW=low,
        ORDERS=orders,
        M=m,
        K=channels,
        PLUS_ONE=plus_one,
        BLOCK_J=block_j,
        BLOCK_K=block_k,
    )
    return out


@torch.library.custom_op("dp_calc::tabulate_sum_components", mutates_args=())
def sum_components(
    planes: Tensor,
    info: Tensor,
    x: Tensor,
    a: Tensor,
    u: Tensor | None,
    stop: Tensor | None,
    low: int,
    two_sided: bool,
) -> Tensor:
    """dF/df: w_ij sum_dm a_ijdm u_imk g_k^(low + d)(x_ij), (nloc, nnei, K).

    Args:
        planes: coefficients, (rows, 6, K).
        info: the six numbers of the domain, (6,), on the CPU.
        x: (nloc, nnei).
        a: (nloc, nnei, orders, M).
        u: (nloc, M, K), or None for ones.
        stop: folded slot of each atom, (nloc,), or None.
        low: lowest order of derivative of the spline.
        two_sided: kind of the domain.
    """
    nloc, nnei, orders, m = a.shape
    channels = planes.shape[2]
    block_k = min(128, triton.next_power_of_2(channels))
    block_j = _slots(4 * _THREADS // block_k)
    out = x.new_empty(nloc, nnei, channels)
    _launch(
        sum_components_kernel,
        nloc * triton.cdiv(nnei, block_j),
        (out, planes, x, a, u, stop, nnei),
        Domain.from_info(info, two_sided, planes.shape[0]),
        LOW=low,
        ORDERS=orders,
        M=m,
        K=channels,
        BLOCK_J=block_j,
        BLOCK_K=block_k,
    )
    return out


def _launch(kernel, programs: int, arguments: tuple, domain: Domain, **constants):
    if programs == 0:
        return
    arguments = [v.contiguous() if isinstance(v, Tensor) else v for v in arguments]
    edges = (domain.left, domain.lower, domain.upper, domain.right)
    rows = (domain.wing, domain.middle, domain.rows)
    tile = constants["BLOCK_J"] * constants["BLOCK_K"]
    with torch.cuda.device_of(arguments[0]):
        launch(
            kernel,
            (programs,),
            *arguments,
            *edges,
            domain.fine,
            domain.coarse,
            *rows,
            **constants,
            num_warps=max(1, min(_WARPS, tile // 32)),
        )


def _slots(*limits: int) -> int:
    """Largest power of two within all limits."""
    return 1 << (max(1, min(limits)).bit_length() - 1)


def _components(u: Tensor | None) -> int:
    return 1 if u is None else u.shape[1]


@sum_neighbors.register_fake
def _(planes, info, x, a, f, stop, low, two_sided, plus_one):
    return x.new_empty(a.shape[0], a.shape[3], planes.shape[2])


@sum_channels.register_fake
def _(planes, info, x, f, u, stop, low, orders, two_sided, plus_one):
    return x.new_empty(*x.shape, orders, _components(u))


@sum_components.register_fake
def _(planes, info, x, a, u, stop, low, two_sided):
    return x.new_empty(*x.shape, planes.shape[2])
