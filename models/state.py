"""Giving a model the tensors of a file: all of them, each one fit for its place."""

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

__all__ = ["assign_tensors", "check_numbers", "first_match"]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def assign_tensors(
    model: nn.Module,
    tensors: dict[str, Tensor],
    rename: Callable[[str], str],
    source: str,
) -> None:
    """Give every parameter and stored buffer of ``model`` its tensor.

    Args:
        model: a model whose parameters have no storage yet.
        tensors: by their names in the file, without those that need not be used.
        rename: name in the file -> name in the model.
        source: what to call the file in an error.

    Raises:
        ValueError: a tensor is missing, unknown, of another shape, or no finite numbers.
    """
    wanted = model.state_dict()
    renamed = {rename(k): k for k in tensors}
    unknown = sorted(renamed[k] for k in renamed.keys() - wanted.keys())
    missing = sorted(wanted.keys() - renamed.keys())
    if len(renamed) < len(tensors):
        raise ValueError(f"{source} is ambiguous: two of its tensors are one parameter")
    if unknown or missing:
        raise ValueError(
            f"{source} does not fit its own options:"
            + (f" it lacks {_listed(missing)}" if missing else "")
            + (" and" if missing and unknown else "")
            + (f" it holds {_listed(unknown)}, which nothing uses" if unknown else "")
        )
    for new, old in renamed.items():
        _check_shape(tensors[old], wanted[new].shape, old, source)
        check_numbers(tensors[old], old, source)
    state = {new: tensors[old].detach() for new, old in renamed.items()}
    model.load_state_dict(state, assign=True)


def check_numbers(tensor: Tensor, name: str, source: str) -> None:
    """Refuse a tensor that is not made of finite floating-point numbers.

    Raises:
        ValueError: naming the tensor and the file.
    """
    if tensor.layout != torch.strided or tensor.is_meta:
        raise ValueError(f"{source}: tensor {name} is stored without all its numbers")
    if tensor.dtype not in _FLOATS:
        raise ValueError(
            f"{source}: tensor {name} holds {tensor.dtype} in the place of "
            "floating-point numbers; the model is damaged"
        )
    if not tensor.isfinite().all():
        raise ValueError(f"{source}: tensor {name} is not finite; the model is damaged")


def first_match(name: str, rules: Sequence[tuple[str, str]]) -> str:
    """Apply the first rule (pattern, replacement) that matches."""
    for pattern, replacement in rules:
        name, count = re.subn(pattern, replacement, name)
        if count:
            break
    return name


def _check_shape(tensor: Tensor, shape: torch.Size, name: str, source: str) -> None:
    if tensor.shape != shape:
        raise ValueError(
            f"{source}: tensor {name} has shape {tuple(tensor.shape)}, its options ask "
            f"for {tuple(shape)}"
        )


def _listed(names: list[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
