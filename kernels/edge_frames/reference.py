"""The operator of this folder in plain PyTorch, for any precision and device."""

import torch
from torch import Tensor

from .tables import FrameTables

__all__ = ["carried_frame", "edge_frames"]


def edge_frames(vec: Tensor, tables: FrameTables) -> Tensor:
    """See ``operators.edge_frames``."""
    length = (vec.square().sum(-1, keepdim=True) + tables.eps**2).sqrt()
    unit = vec / length
    first, second = carried_frame(unit)
    powers = unit[:, :, None] ** tables.powers.to(unit.dtype)
    monomials = powers.prod(dim=1)
    harmonics, *by_axis = (monomials @ table for table in tables.coefficients)
    turned = torch.stack(by_axis, dim=1)  # (E, 3, D)
    minus = tables.step * (first[:, :, None] * turned).sum(1)
    plus = tables.step * (second[:, :, None] * turned).sum(1)
    return torch.stack([harmonics, minus, plus], dim=1)


def carried_frame(unit: Tensor) -> tuple[Tensor, Tensor]:
    """First and second axis of the frame, (E, 3) each, with ``unit`` as the third.

    Their derivative is that of a frame which the direction carries along without a turn
    about itself: no energy depends on that turn.
    """
    first, second = _axes(unit.detach())
    return tuple(
        axis - (axis * unit).sum(-1, keepdim=True) * unit.detach()
        for axis in (first, second)
    )


def _axes(unit: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest rotation to z, after half a turn about y where that is ill-defined."""
    x, y, z = unit.unbind(-1)
    s = torch.where(z > -0.5, 1.0, -1.0).to(unit.dtype)
    d = 1 + s * z
    first = torch.stack([s * (1 - x * x / d), -s * x * y / d, -x], dim=-1)
    second = torch.stack([-x * y / d, 1 - y * y / d, -s * y], dim=-1)
    return first, second
