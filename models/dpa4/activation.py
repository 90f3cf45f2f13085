"""Scalar activations by the names that configurations use."""

from collections.abc import Callable
from functools import partial
from math import exp

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Activation", "is_activation"]


def _identity(x: Tensor) -> Tensor:
    return x


_GELU = partial(F.gelu, approximate="tanh")
_BY_NAME: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "relu6": F.relu6,
    "softplus": F.softplus,
    "gelu": _GELU,
    "gelu_tf": _GELU,
    "linear": _identity,
    "none": _identity,
}
_TANH_TAILED = ("silut", "custom_silu")


def is_activation(name: str) -> bool:
    """Whether the format has an activation of that name."""
    base, _, threshold = str(name).lower().partition(":")
    if base in _TANH_TAILED:
        return not threshold or threshold.replace(".", "", 1).isdigit()
    return base in _BY_NAME and not threshold


class Activation(nn.Module):
    """The activation of a name that ``is_activation``."""

    def __init__(self, name: str):
        super().__init__()
        base, _, threshold = name.lower().partition(":")
        tailed = base in _TANH_TAILED
        self.function = (
            TanhTailedSiLU(float(threshold or 3)) if tailed else _BY_NAME[base]
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class TanhTailedSiLU:
    """SiLU below the threshold, above it a tanh that continues value and slope."""

    def __init__(self, threshold: float):
        sigma = 1 / (1 + exp(-threshold))
        self.threshold = threshold
        self.value = threshold * sigma
        self.slope = sigma * (1 + threshold * (1 - sigma))

    def __call__(self, x: Tensor) -> Tensor:
        tail = torch.tanh(self.slope * (x - self.threshold)) + self.value
        return torch.where(x < self.threshold, F.silu(x), tail)
