"""The tabulated operators on Triton kernels: every order of derivative but by the table.

The form F of :mod:`.kernels` is linear in a, f and u, and its derivative by x raises the
order of the spline by one. So the derivatives of each of the three sums are the other
sums, and registering these once gives every order. The table is not differentiated.
"""

from torch import Tensor, ones_like

from ..derivatives import has_tangent
from .ops import sum_channels, sum_components, sum_neighbors

__all__ = ["contract", "evaluate"]


def contract(
    table: Tensor,
    info: Tensor,
    x: Tensor,
    em: Tensor,
    two_embed: Tensor | None,
    stop: Tensor | None,
    two_sided: bool,
) -> Tensor:
    """As :func:`reference.contract`; nothing of size (nloc, nnei, K) is stored."""
    planes, a = _planes(table), em[:, :, None, :]
    return sum_neighbors(planes, info, x, a, two_embed, stop, 0, two_sided, True)


def evaluate(table: Tensor, info: Tensor, x: Tensor, two_sided: bool) -> Tensor:
    """As :func:`reference.evaluate`."""
    slots = x.reshape(1, -1)
    ones = ones_like(slots)[:, :, None, None]
    value = sum_components(_planes(table), info, slots, ones, None, None, 0, two_sided)
    return value.reshape(*x.shape, value.shape[2])


def _planes(table: Tensor) -> Tensor:
    """One plane of K coefficients per power, (rows, 6, K), for threads side by side."""
    return table.reshape(table.shape[0], -1, 6).mT.contiguous()


def _save_neighbors(ctx, inputs, output):
    *tensors, ctx.low, ctx.two_sided, ctx.plus_one = inputs
    ctx.save_for_backward(*tensors)


def _neighbors_backward(ctx, u):
    _refuse_what_is_not_given(ctx, u)
    planes, info, x, a, f, stop = ctx.saved_tensors
    needs = ctx.needs_input_grad
    common, rest = (planes, info, x), (ctx.two_sided, ctx.plus_one)
    dx, da = _by_place(common, a, f, u, stop, ctx.low, rest, needs[2], needs[3])
    df = None
    if needs[4]:
        df = sum_components(*common, a, u, stop, ctx.low, ctx.two_sided)
    return None, None, dx, da, df, None, None, None, None


def _save_channels(ctx, inputs, output):
    *tensors, ctx.low, ctx.orders, ctx.two_sided, ctx.plus_one = inputs
    ctx.save_for_backward(*tensors)


def _channels_backward(ctx, a):
    _refuse_what_is_not_given(ctx, a)
    planes, info, x, f, u, stop = ctx.saved_tensors
    needs = ctx.needs_input_grad
    common, rest = (planes, info, x), (ctx.two_sided, ctx.plus_one)
    dx, _ = _by_place(common, a, f, u, stop, ctx.low, rest, needs[2], False)
    df = du = None
    if needs[3]:
        df = sum_components(*common, a, u, stop, ctx.low, ctx.two_sided)
    if needs[4]:
        du = sum_neighbors(*common, a, f, stop, ctx.low, *rest)
    return None, None, dx, df, du, None, None, None, None, None


def _save_components(ctx, inputs, output):
    *tensors, ctx.low, ctx.two_sided = inputs
    ctx.save_for_backward(*tensors)


def _components_backward(ctx, f):
    _refuse_what_is_not_given(ctx, f)
    planes, info, x, a, u, stop = ctx.saved_tensors
    needs = ctx.needs_input_grad
    common, rest = (planes, info, x), (ctx.two_sided, False)
    dx, da = _by_place(common, a, f, u, stop, ctx.low, rest, needs[2], needs[3])
    du = None
    if needs[4]:
        du = sum_neighbors(*common, a, f, stop, ctx.low, *rest)
    return None, None, dx, da, du, None, None, None


def _refuse_what_is_not_given(ctx, cotangent):
    # Both would be lost without a word.
    if ctx.needs_input_grad[0] or has_tangent(cotangent):
        raise RuntimeError(
            "the Triton path gives neither a gradient of the table nor derivatives in "
            'forward mode; use kernels="torch"'
        )


def _by_place(common, a, f, u, stop, low, rest, needs_x, needs_a):
    """dF/dx and dF/da, as far as they are needed, from one sum over channels."""
    if not (needs_x or needs_a):
        return None, None
    orders = a.shape[2]
    skip = 0 if needs_a else 1
    count = orders + needs_x - skip
    sums = sum_channels(*common, f, u, stop, low + skip, count, *rest)
    dx = (a * sums[:, :, 1 - skip :]).sum((2, 3)) if needs_x else None
    da = sums[:, :, :orders] if needs_a else None
    return dx, da


sum_neighbors.register_autograd(_neighbors_backward, setup_context=_save_neighbors)
sum_channels.register_autograd(_channels_backward, setup_context=_save_channels)
sum_components.register_autograd(_components_backward, setup_context=_save_components)
