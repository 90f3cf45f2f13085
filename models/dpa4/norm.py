"""Root-mean-square norms, scalar and equivariant."""

import torch
from torch import Tensor, nn

from .layout import packed_size
from .linear import expand_degrees, parameter

__all__ = ["EquivariantNorm", "ScalarNorm", "rms_normalize"]


def rms_normalize(x: Tensor, eps: float) -> Tensor:
    """``x / sqrt(mean(x^2) + eps)`` over the last axis.

    The mean of squares is evaluated as such: radial features vanish with the fourth power
    near the cutoff, and reordered forms lose their relative accuracy there.
    """
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


class ScalarNorm(nn.Module):
    """Root-mean-square norm per focus stream, (F, B, C) -> (F, B, C)."""

    def __init__(self, n_focus: int, channels: int, eps: float):
        super().__init__()
        self.eps = eps
        self.adam_scale = parameter(n_focus, channels)

    def forward(self, x: Tensor) -> Tensor:
        return rms_normalize(x, self.eps) * self.adam_scale[:, None, :]


class EquivariantNorm(nn.Module):
    """Norm over all rows of a node at once, (N, D, C) -> (N, D, C) on packed rows.

    The scalar row is centred first; each degree counts with ``balance_weight``, which the
    checkpoint stores and whose rounding is part of the model.
    """

    def __init__(self, lmax: int, channels: int, eps: float):
        super().__init__()
        self.lmax, self.eps = lmax, eps
        self.adam_scale = parameter(lmax + 1, 1, channels)
        self.bias = parameter(1, channels)
        self.balance_weight = nn.Buffer(torch.empty(packed_size(lmax), device="meta"))

    def forward(self, x: Tensor) -> Tensor:
        scale = expand_degrees(self.adam_scale[:, 0], self.lmax)
        return balanced_normalize(x, self.balance_weight, self.eps, scale, self.bias)


def balanced_normalize(
    x: Tensor, balance: Tensor, eps: float, scale: Tensor, bias: Tensor
) -> Tensor:
    """Centre row 0, divide by the balanced norm of all rows, scale, shift row 0.

    Args:
        x: (..., R, C), the scalar row first.
        balance: weight of each row in the norm, (R,).
        eps: floor of the squared norm.
        scale: gain of each row, broadcastable to (..., R, C).
        bias: added to the scalar row, broadcastable to (..., 1, C).
    """
    scalar, rest = x[..., :1, :], x[..., 1:, :]
    centred = torch.cat([scalar - scalar.mean(-1, keepdim=True), rest], dim=-2)
    variance = (centred.square().sum(-1) * balance).sum(-1)
    scaled = centred * torch.rsqrt(variance + eps)[..., None, None] * scale
    return torch.cat([scaled[..., :1, :] + bias, scaled[..., 1:, :]], dim=-2)
