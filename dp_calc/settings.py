"""Every choice a user has about how a model is run."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

from torch import nn

__all__ = ["Settings"]

_NO_KERNEL = "no Triton kernel exists for {} in this version"


@dataclass(frozen=True)
class Settings:
    """How a model is run; only ``compress`` changes results by more than rounding.

    Attributes:
        kernels: what runs the arithmetic: ``"auto"`` (the fastest that gives the right
            numbers here), ``"torch"`` (plain PyTorch) or ``"triton"`` (for the tables of
            compressed models on CUDA).
        backward: what is kept for the forces: ``"native"`` (all activations of all edges,
            fastest), ``"stream"`` (node tensors only, cohorts of edges are evaluated
            again; memory grows with atoms) or ``"auto"`` (native where it fits).
        compile: whether compiled code is run: None for CUDA devices only. The first
            evaluation then takes longer, once for each model and device.
        cohort_edges: edges in a cohort of the streaming backward, a multiple of 16.
        compress: replace the embedding nets of a classic model by tables.
        stride: width of their rows where atoms are as close as in the training data, in
            units of the normalised environment matrix; see ``compress``.
        extrapolate: they end at this multiple of that range.
        skin: in Å; neighbours are searched this much beyond the cutoff, and again only
            when atoms or cell have changed by too much. Results do not depend on it.

    Raises:
        ValueError: a value that the field does not take, or that cannot be honoured.
    """

    kernels: str = "auto"
    backward: str = "auto"
    compile: bool | None = None
    cohort_edges: int = 8192
    compress: bool = False
    stride: float = 0.01
    extrapolate: float = 5.0
    skin: float = 1.0

    def __post_init__(self):
        for field in fields(self):
            _check(field.name, getattr(self, field.name))
        for name in ("stride", "extrapolate"):
            if not self.compress and getattr(self, name) != getattr(Settings, name):
                raise ValueError(
                    f"{name} shapes the tables of a compressed model and does nothing "
                    "else; give compress=True with it, or leave it out"
                )

    @classmethod
    def from_keywords(cls, **keywords: Any) -> "Settings":
        """Make settings from keyword arguments of any name.

        Raises:
            TypeError: a keyword is no field of this class.
            ValueError: as the class itself.
        """
        known = [field.name for field in fields(cls)]
        unknown = sorted(keywords.keys() - set(known))
        if unknown:
            raise TypeError(
                f"unknown setting {', '.join(unknown)}; the settings are "
                f"{', '.join(known)}"
            )
        return cls(**keywords)

    def describe(self, model: nn.Module | None = None) -> str:
        """Say which path runs and why, and what is kept for the forces.

        Args:
            model: the model to be run; where and in which precision is told only for one.
        """
        if hasattr(model, "members"):
            each = dict.fromkeys(self.describe(member) for member in model.members)
            one_by_one = f"{len(model.members)} models, one after the other"
            return f"{one_by_one}. {' '.join(each)}"
        where = "" if model is None else f" on {model.device} in {_precision(model)}"
        what, why = self._arithmetic(model)
        return f"{what}{where}, {why}. {_KEPT[self.backward]}"

    def _arithmetic(self, model: nn.Module | None) -> tuple[str, str]:
        """What runs the arithmetic, and why."""
        # Settings can be had without PyTorch's weight; a model cannot.
        from .models.classic.compress import is_compressed

        asked = f'as asked by kernels="{self.kernels}"'
        tabulated = is_compressed(model)
        if self.kernels != "torch" and tabulated and model.device.type == "cuda":
            why = asked if self.kernels == "triton" else "because it is a CUDA device"
            return "Triton kernels for the tables and plain PyTorch for the rest", why
        if self.kernels == "torch":
            return "Plain PyTorch", asked
        if tabulated:
            return "Plain PyTorch", "because the Triton kernels need a CUDA device"
        return "Plain PyTorch", f"because {_NO_KERNEL.format(_kind(model))}"


_CHOICES: dict[str, tuple[str, ...]] = {
    "kernels": ("auto", "torch", "triton"),
    "backward": ("auto", "native", "stream"),
}
"""Accepted values of the fields that take names."""

_KEPT = {
    "auto": "For the forces all activations are kept where they fit into half of the "
    "memory, else edges are evaluated again in cohorts.",
    "native": "For the forces all activations are kept.",
    "stream": "For the forces edges are evaluated again in cohorts.",
}

_REFUSED: dict[tuple[str, str], str] = {
    ("backward", "cohort"): _NO_KERNEL.format("DPA4"),
}
"""Values that deserve a reason of their own."""

_CONDITIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "cohort_edges": (
        "a positive multiple of 16",
        lambda x: _is_number(x, int) and x > 0 and x % 16 == 0,
    ),
    "compile": (
        "True, False or None",
        lambda x: x is None or isinstance(x, bool),
    ),
    "compress": ("True or False", lambda x: isinstance(x, bool)),
    "stride": ("a positive number", lambda x: _is_number(x) and x > 0),
    "extrapolate": ("a number above 1", lambda x: _is_number(x) and x > 1),
    "skin": ("a distance of 0 or more", lambda x: _is_number(x) and x >= 0),
}
"""What the other fields must be, in words and as a test."""


def _check(name: str, value: Any) -> None:
    if name in _CONDITIONS:
        wanted, holds = _CONDITIONS[name]
        if not holds(value):
            raise ValueError(f"{name} must be {wanted}, not {value!r}")
        return
    choices = _CHOICES[name]
    if value in choices:
        return
    allowed = " or ".join(f'"{choice}"' for choice in choices)
    if isinstance(value, str) and (name, value) in _REFUSED:
        why = _REFUSED[name, value]
        raise ValueError(f'{name}="{value}" cannot be had: {why}; use {allowed}')
    raise ValueError(f"{name} must be {allowed}, not {value!r}")


def _is_number(value: Any, kind: type = Real) -> bool:
    return (
        isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
    )


def _kind(model: nn.Module | None) -> str:
    architecture = getattr(model, "architecture", "DPA4")
    return architecture if architecture == "DPA4" else f"uncompressed {architecture}"


def _precision(model: nn.Module) -> str:
    return str(model.dtype).removeprefix("torch.")
