"""Checks of what the operators are called with, before anything runs."""

from math import prod

import torch
from torch import Tensor

__all__ = [
    "check_basis",
    "check_count",
    "check_dimensions",
    "check_rows",
    "check_table",
    "check_tensors",
]

_DTYPES = (torch.float32, torch.float64)
_COMPONENTS = (4, 9, 16, 25)


def check_table(table: Tensor, info: Tensor, K: int) -> None:
    """Refuse a table, domain numbers or a channel count that do not belong together."""
    for name, tensor in (("table", table), ("info", info)):
        _check_tensor(name, tensor)
    if table.dtype not in _DTYPES:
        raise ValueError(f"table must be float32 or float64, not {table.dtype}")
    if not isinstance(K, int) or K < 1:
        raise ValueError(f"K must be a positive whole number of channels, not {K!r}")
    if table.ndim != 2 or table.shape[1] != 6 * K:
        raise ValueError(
            f"table must have shape (rows, 6 K) = (rows, {6 * K}), but has shape "
            f"{tuple(table.shape)}"
        )
    if tuple(info.shape) != (6,) or info.dtype != table.dtype:
        raise ValueError(
            f"info must hold 6 numbers of the table's dtype {table.dtype}, but has shape "
            f"{tuple(info.shape)} and dtype {info.dtype}"
        )
    if info.device.type != "cpu":
        raise ValueError(
            f"info must be on the CPU, where its numbers are read, not on {info.device}; "
            "pass info.cpu()"
        )


def check_tensors(table: Tensor, **tensors: Tensor) -> None:
    """Refuse tensors that do not share the table's dtype and device."""
    for name, tensor in tensors.items():
        _check_tensor(name, tensor)
        if tensor.dtype != table.dtype or tensor.device != table.device:
            raise ValueError(
                f"{name} must have the table's dtype and device, {table.dtype} on "
                f"{table.device}, but is {tensor.dtype} on {tensor.device}"
            )


def check_dimensions(tensor: Tensor, name: str, axes: tuple[str, ...]) -> None:
    """Refuse a tensor whose number of axes is not that of ``axes``."""
    if tensor.ndim != len(axes):
        raise ValueError(
            f"{name} must have shape ({', '.join(axes)}), but has shape "
            f"{tuple(tensor.shape)}"
        )


def check_basis(em: Tensor) -> None:
    """Refuse an ``em`` that is not (nloc, nnei, M) with M a known basis size."""
    check_dimensions(em, "em", ("nloc", "nnei", "M"))
    if em.shape[2] not in _COMPONENTS:
        raise ValueError(
            f"em must have 4, 9, 16 or 25 components on its last axis, not {em.shape[2]}"
        )


def check_count(em_x: Tensor, em: Tensor, axes: int) -> None:
    """Refuse an ``em_x`` that has not one number for each slot of ``em``."""
    slots = prod(em.shape[:axes])
    if em_x.numel() != slots:
        raise ValueError(
            f"em_x must hold one number for each of the {slots} slots of em, which has "
            f"shape {tuple(em.shape)}, but holds {em_x.numel()}"
        )


def check_rows(two_embed: Tensor, em: Tensor, K: int) -> None:
    """Refuse a ``two_embed`` that has not K numbers for each slot of ``em``."""
    shape = (em.shape[0] * em.shape[1], K)
    if tuple(two_embed.shape) != shape:
        raise ValueError(
            f"two_embed must have shape (nloc * nnei, K) = {shape}, but has shape "
            f"{tuple(two_embed.shape)}"
        )


def _check_tensor(name: str, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a torch.Tensor, not {type(value).__name__}")
