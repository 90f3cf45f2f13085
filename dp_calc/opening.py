"""From what a user gives to a model, or a committee, that is ready to be run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .backward import check_backward
from .committee import Committee, members_of
from .models import Potential
from .placement import open_model, ordinary_tensors
from .settings import Settings
from .tables import with_tables

__all__ = ["open_potential"]


def open_potential(
    model: str | Path | nn.Module | Sequence[str | Path | nn.Module],
    head: str | Sequence[str] | None,
    device: torch.device | str | None,
    dtype: torch.dtype | str | None,
    settings: Settings,
) -> Potential:
    """Open one model, or several as a committee, ready to be run as the settings say.

    Args:
        model: path or model, or a list of them.
        head: branch of a multi-task file; of a committee one for all or one for each.
        device: see ``pick_device``.
        dtype: see ``pick_dtype``.
        settings: how it will be run.

    Raises:
        TypeError: something is neither path nor model.
        ValueError: an argument cannot be honoured; the message says why.
    """
    if isinstance(model, Committee):
        model = members_of(model)
    if not isinstance(model, list | tuple):
        return _open_one(model, head, device, dtype, settings)
    heads = _heads(head, len(model))
    members = [
        _open_one(one, its, device, dtype, settings)
        for one, its in zip(model, heads, strict=True)
    ]
    return Committee(members)


def _open_one(
    model: Any,  # whatever was given, which is checked below
    head: Any,
    device: torch.device | str | None,
    dtype: torch.dtype | str | None,
    settings: Settings,
) -> Potential:
    if isinstance(model, Committee):
        raise ValueError(
            "a committee cannot be a member of another; give its models one by one"
        )
    with ordinary_tensors():
        opened = with_tables(open_model(model, head, device, dtype), settings)
    check_backward(opened, settings)
    return opened


def _heads(head: str | Sequence[str] | None, count: int) -> Sequence[str | None]:
    if head is None or isinstance(head, str):
        return [head] * count
    if len(head) != count:
        raise ValueError(
            f"{len(head)} heads were given for {count} models; give one for each, or one "
            "for all"
        )
    return head
