"""Weights of an SO(2) stack in the form in which the kernels read them."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..products import split
from .layout import Layout

__all__ = ["StackWeights", "stack_weights"]


@dataclass(frozen=True)
class StackWeights:
    """Matrices of all layers, each in the parts that ``products.split`` makes.

    Attributes:
        layout: sizes of the features.
        precision: of the products, see ``products``.
        order_0: maps of order 0, (layers, parts, F, n, n).
        order_1: maps of orders -1 and +1, (layers, parts, F, m, m).
        gate: from scalars to gates, (layers - 1, parts, F, C, L C).
        order_0_t, order_1_t, gate_t: the same matrices transposed.
    """

    layout: Layout
    precision: str
    order_0: Tensor
    order_1: Tensor
    gate: Tensor
    order_0_t: Tensor
    order_1_t: Tensor
    gate_t: Tensor

    NAMES: ClassVar = (
        "order_0",
        "order_1",
        "gate",
        "order_0_t",
        "order_1_t",
        "gate_t",
    )

    @property
    def n_layers(self) -> int:
        """Layers of the stack, gated ones and the last."""
        return len(self.order_0)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All matrices, in order."""
        return tuple(getattr(self, name) for name in self.NAMES)


def stack_weights(
    layout: Layout,
    precision: str,
    order_0: list[Tensor],
    order_1: list[Tensor],
    gate: list[Tensor],
) -> StackWeights:
    """Stack, split and transpose the matrices of all layers.

    Args:
        layout: sizes of the features.
        precision: of the products.
        order_0: per layer, (F, n, n) with n = (L + 1) C.
        order_1: per layer, (F, m, m) with m = 2 L C, rows and columns of -1 first.
        gate: per layer but the last, (F, C, L C).
    """
    tables = []
    for transposed in (False, True):
        for matrices in (order_0, order_1, gate):
            turned = [x.mT.contiguous() if transposed else x for x in matrices]
            parts = [split(x, precision) for x in turned]
            tables.append(torch.stack(parts) if parts else tables[0].new_empty([0] * 5))
    return StackWeights(layout, precision, *tables)
