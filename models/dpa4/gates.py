"""Gated activation on packed rows."""

import torch
from torch import Tensor, nn

from .activation import Activation
from .linear import FocusLinear, expand_degrees

__all__ = ["PackedGate"]


class PackedGate(nn.Module):
    """Activation of the scalar row, a sigmoid gate per degree and channel on all others.

    With a second field (GLU) the scalar row is multiplied by its activated scalar, and
    the gates come from it.
    """

    def __init__(
        self, lmax: int, n_focus: int, channels: int, activation: str, bias: bool
    ):
        super().__init__()
        self.lmax = lmax
        self.activation = Activation(activation)
        if lmax > 0:
            self.gate_linear = FocusLinear(n_focus, channels, lmax * channels, bias)

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """(F, N, D, C) -> (F, N, D, C)."""
        source = x[:, :, 0] if other is None else other[:, :, 0]
        scalar = self.activation(source)
        if other is not None:
            scalar = x[:, :, 0] * scalar
        if self.lmax == 0:
            return scalar[:, :, None]
        gates = self.gate_linear(source).sigmoid().unflatten(2, (self.lmax, -1))
        gates = torch.cat([torch.zeros_like(gates[:, :, :1]), gates], dim=2)
        rows = expand_degrees(gates.movedim(2, 0), self.lmax).movedim(0, 2)
        return torch.cat([scalar[:, :, None], x[:, :, 1:] * rows[:, :, 1:]], dim=2)
