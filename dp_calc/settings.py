"""Every choice a user has about how a model is run."""

from dataclasses import dataclass, fields
from typing import Any

from torch import nn

__all__ = ["Settings"]

_NO_KERNEL = "no Triton kernel exists for DPA4 in this version"


@dataclass(frozen=True)
class Settings:
    """How a model is run; never what is computed.

    Attributes:
        kernels: what runs the arithmetic: ``"auto"`` (the fastest that gives the right
            numbers here) or ``"torch"`` (plain PyTorch).
        backward: what is kept for the forces: ``"native"`` (all activations of all edges,
            fastest), ``"stream"`` (node tensors only, cohorts of edges are evaluated
            again; memory grows with atoms) or ``"auto"`` (native where it fits).
        cohort_edges: edges in a cohort of the streaming backward, a multiple of 16.

    Raises:
        ValueError: a value that the field does not take, or that cannot be honoured.
    """

    kernels: str = "auto"
    backward: str = "auto"
    cohort_edges: int = 8192

    def __post_init__(self):
        for field in fields(self):
            _check(field.name, getattr(self, field.name))

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
        """Say in one sentence which path runs and why.

        Args:
            model: the model to be run; where and in which precision is told only for one.
        """
        why = f"because {_NO_KERNEL}"
        if self.kernels == "torch":
            why = 'as asked by kernels="torch"'
        where = "" if model is None else f" on {model.device} in {_precision(model)}"
        return f"Plain PyTorch{where}, {why}."


_CHOICES: dict[str, tuple[str, ...]] = {
    "kernels": ("auto", "torch"),
    "backward": ("auto", "native", "stream"),
}
"""Accepted values of the fields that take names."""

_REFUSED: dict[tuple[str, str], str] = {
    ("kernels", "triton"): _NO_KERNEL,
    ("backward", "cohort"): _NO_KERNEL,
}
"""Values that deserve a reason of their own."""


def _check(name: str, value: Any) -> None:
    if name == "cohort_edges":
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < 16 or value % 16:
            raise ValueError(f"{name} must be a positive multiple of 16, not {value!r}")
        return
    choices = _CHOICES[name]
    if value in choices:
        return
    allowed = " or ".join(f'"{choice}"' for choice in choices)
    if isinstance(value, str) and (name, value) in _REFUSED:
        why = _REFUSED[name, value]
        raise ValueError(f'{name}="{value}" cannot be had: {why}; use {allowed}')
    raise ValueError(f"{name} must be {allowed}, not {value!r}")


def _precision(model: nn.Module) -> str:
    return str(model.dtype).removeprefix("torch.")
