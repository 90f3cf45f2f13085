"""Low-rank adapters of a fine-tuned checkpoint, folded into the weights they adapt.

An adapted map has a weight ``W`` and two thin factors beside it and acts as
``W + s (B A)^T``, with one ``s`` for all weights of the map.
"""

import re

import torch
from torch import Tensor

__all__ = ["fold_adapters"]

# One weight for each degree (SO(3) maps), or for each order (SO(2) maps).
_WEIGHT_OF_FACTOR = (
    (re.compile(r"^(.*)A_by_l$"), "B_by_l", "weight"),
    (re.compile(r"^(.*)A_m0$"), "B_m0", "weight_m0"),
    (re.compile(r"^(.*)A_m\.(\d+)$"), "B_m.", "weight_m."),
)
_ADAPTER = re.compile(r"(^|\.)([AB]_by_l|[AB]_m0|[AB]_m\.\d+|lora_scaling)$")


def fold_adapters(tensors: dict[str, Tensor], source: str) -> dict[str, Tensor]:
    """Fold every adapter into its weight and leave the adapters out.

    Args:
        tensors: those of a branch by name.
        source: what to call the file in an error.

    Returns:
        A new dictionary; folded weights are float64, all others the given tensors.

    Raises:
        ValueError: an adapter does not fit a weight, or has none.
    """
    folded = {k: v for k, v in tensors.items() if not _ADAPTER.search(k)}
    used = set()
    for name in tensors:
        parts = _adapter(name)
        if parts is None:
            continue
        prefix, second, weight = parts
        if second not in tensors or weight not in tensors:
            raise ValueError(f"{source} is damaged: adapter {name} adapts no weight")
        scaling = tensors.get(prefix + "lora_scaling", torch.ones(()))
        folded[weight] = _fold(
            tensors[weight], tensors[name], tensors[second], scaling, name, source
        )
        used |= {name, second, prefix + "lora_scaling"}
    unused = sorted(k for k in tensors if _ADAPTER.search(k) and k not in used)
    if unused:
        raise ValueError(f"{source} is damaged: adapter {unused[0]} is incomplete")
    return folded


def _adapter(name: str) -> tuple[str, str, str] | None:
    """Prefix of the map, name of the second factor, name of the weight."""
    for pattern, second, weight in _WEIGHT_OF_FACTOR:
        found = pattern.match(name)
        if found:
            prefix, index = found[1], found[2] if pattern.groups > 1 else ""
            return prefix, prefix + second + index, prefix + weight + index
    return None


def _fold(
    weight: Tensor, a: Tensor, b: Tensor, scaling: Tensor, name: str, source: str
) -> Tensor:
    """Weight (..., i, o) plus ``s`` times the product of A (..., r, i) and B (..., o, r).

    In float64: one rounding, that to the precision of the model.
    """
    fits = scaling.numel() == 1 and a.ndim == b.ndim == weight.ndim >= 2
    if not fits or b.shape[:-1] + a.shape[-1:] != weight.mT.shape:
        raise ValueError(f"{source} is damaged: adapter {name} does not fit its weight")
    if a.shape[:-2] != b.shape[:-2] or a.shape[-2] != b.shape[-1]:
        raise ValueError(f"{source} is damaged: the two parts of {name} do not fit")
    weight, a, b = (t.to(torch.float64) for t in (weight, a, b))
    return weight + scaling.to(torch.float64).reshape(()) * (b @ a).mT
