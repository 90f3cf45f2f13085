"""The SO(2) stack on Triton kernels: forward, and backward whole or cohort by cohort."""

import torch
import triton
from torch import Tensor

from ..launch import launch
from .configs import layer_launch
from .layout import Layout
from .mixing import layer_backward_kernel, layer_kernel

__all__ = ["mix_backward", "mix_forward"]


def mix_forward(
    rows: Tensor,
    order_0: Tensor,
    order_1: Tensor,
    gate: Tensor,
    layout: Layout,
    precision: str,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the layers.

    Args:
        rows: (E, R, H).
        order_0: as in ``StackWeights``, like the following two.
        order_1: of orders -1 and +1.
        gate: from scalars to gates.
        layout: sizes of the features.
        precision: of the products.
        save: keep what the backward needs.

    Returns:
        (E, R, H); linear maps of the gated layers, (layers - 1, E, R, H); their gates,
        (layers - 1, E, L, H). The last two are empty unless saved.
    """
    n_edges, n_gated = len(rows), len(gate)
    kept = n_gated if save else 0
    mixed = rows.new_empty(kept, *rows.shape)
    gates = rows.new_empty(kept, n_edges, layout.lmax, layout.width)
    for i in range(n_gated):
        out = torch.empty_like(rows)
        saved = (mixed[i], gates[i]) if save else None
        maps = (order_0[i], order_1[i])
        _layer(rows, maps, gate[i], out, saved, layout, precision)
        rows = out
    out = torch.empty_like(rows)
    _layer(rows, (order_0[-1], order_1[-1]), None, out, None, layout, precision)
    return out, mixed, gates


def mix_backward(
    grad: Tensor,
    mixed: Tensor,
    gates: Tensor,
    order_0_t: Tensor,
    order_1_t: Tensor,
    gate_t: Tensor,
    layout: Layout,
    precision: str,
    cohort_edges: int,
) -> Tensor:
    """Gradient for the rows that went in, (E, R, H).

    Args:
        grad: gradient of the result, (E, R, H).
        mixed: linear maps that the forward saved.
        gates: gates that it saved.
        order_0_t: as in ``StackWeights``, like the following two.
        order_1_t: of orders -1 and +1, transposed.
        gate_t: from scalars to gates, transposed.
        layout: sizes of the features.
        precision: of the products.
        cohort_edges: finish all layers for so many edges before the next, in the same
            scratch; 0 does all edges at once. The result has the same bits.
    """
    n_edges = len(grad)
    result = torch.empty_like(grad)
    step = min(cohort_edges or n_edges, n_edges)
    scratch = [grad.new_empty(step, *grad.shape[1:]) for _ in range(2)]
    n_gated = len(gate_t)
    for start in range(0, n_edges, max(step, 1)):
        part = slice(start, min(start + step, n_edges))
        pulled, following = (x[: part.stop - start] for x in scratch)
        maps = (order_0_t[-1], order_1_t[-1])
        target = pulled if n_gated else result[part]
        _layer(grad[part], maps, None, target, None, layout, precision)
        for i in reversed(range(n_gated)):
            saved = (mixed[i, part], gates[i, part])
            target = following if i else result[part]
            maps = (order_0_t[i], order_1_t[i])
            _layer_backward(pulled, saved, maps, gate_t[i], target, layout, precision)
            pulled, following = following, pulled
    return result


def _layer(
    rows: Tensor,
    maps: tuple[Tensor, Tensor],
    gate: Tensor | None,
    out: Tensor,
    saved: tuple[Tensor, Tensor] | None,
    layout: Layout,
    precision: str,
) -> None:
    mixed, gates = saved or (None, None)
    if not len(rows):
        return
    launch(
        layer_kernel,
        _programs(rows, layout),
        rows,
        *maps,
        gate,
        out,
        mixed,
        gates,
        len(rows),
        maps[0][0].numel(),
        maps[1][0].numel(),
        0 if gate is None else gate[0].numel(),
        **_sizes(layout, precision),
    )


def _layer_backward(
    grad: Tensor,
    saved: tuple[Tensor, Tensor],
    maps: tuple[Tensor, Tensor],
    gate: Tensor,
    out: Tensor,
    layout: Layout,
    precision: str,
) -> None:
    if not len(grad):
        return
    launch(
        layer_backward_kernel,
        _programs(grad, layout),
        grad,
        *saved,
        *maps,
        gate,
        out,
        len(grad),
        maps[0][0].numel(),
        maps[1][0].numel(),
        gate[0].numel(),
        **_sizes(layout, precision),
    )


def _programs(rows: Tensor, layout: Layout) -> tuple[int]:
    block = layer_launch(layout.channels).block
    return (triton.cdiv(len(rows), block) * layout.n_focus,)


def _sizes(layout: Layout, precision: str) -> dict:
    launch = layer_launch(layout.channels)
    # Rows that one product forms.
    joined = 2 if 2 * layout.channels <= launch.columns else 1
    return {
        "LMAX": layout.lmax,
        "N_FOCUS": layout.n_focus,
        "CHANNELS": layout.channels,
        "BLOCK": launch.block,
        "JOINED_0": joined if layout.lmax % 2 else 1,
        "JOINED_1": joined,
        "PRECISION": precision,
        "num_warps": launch.warps,
        "num_stages": launch.stages,
    }
