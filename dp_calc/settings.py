"""Every choice a user has about how a model is run."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from torch import nn

from .environment import settings_from_environment

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """How a model is run.

    Only ``compress`` and ``precision`` change results by more than rounding.

    Attributes:
        kernels: what runs the arithmetic: ``"auto"`` (the fastest that gives the right
            numbers here), ``"torch"`` (plain PyTorch) or ``"triton"`` (kernels for the
            edges of DPA4 models and for the tables of compressed ones, on CUDA).
        backward: what is kept for the forces: ``"native"`` (all activations of all
            edges), ``"cohort"`` (the same, but the kernels' backward finishes a cohort of
            edges before the next; the same bits), ``"stream"`` (node tensors only,
            cohorts of edges are evaluated again; memory grows with atoms) or ``"auto"``
            (native where it is fastest and fits, else stream).
        compile: whether compiled code is run: None for CUDA devices only, and there for
            what is streamed; what is kept whole on kernels is recorded as CUDA graphs in
            its place. The first evaluation takes longer, once for each model and device.
        cohort_edges: edges in a cohort of the streaming backward, a multiple of 16.
        precision: of matrix products in float32: ``"exact"``; ``"fast"``, a little less
            exact where large and tiny numbers meet, on kernels; or ``"tf32"``, which is a
            thousand times less exact, and too rough for dynamics.
        deterministic: sums have one order, so that repeats agree to the last bit. Nothing
            is faster without, so False changes nothing.
        compress: replace the embedding nets of a classic model by tables.
        stride: width of their rows where atoms are as close as in the training data, in
            units of the normalised environment matrix; see ``compress``.
        extrapolate: they end at this multiple of that range.
        skin: in Å; neighbours are searched this much beyond the cutoff, and again only
            when atoms or cell have changed by too much. Results do not depend on it.
        origins: environment variable that each setting comes from, where one does.

    Raises:
        ValueError: a value that the field does not take, or that cannot be honoured.
    """

    kernels: str = "auto"
    backward: str = "auto"
    compile: bool | None = None
    cohort_edges: int = 8192
    precision: str = "exact"
    deterministic: bool = True
    compress: bool = False
    stride: float = 0.01
    extrapolate: float = 5.0
    skin: float = 1.0
    origins: Mapping[str, str] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self):
        for name in self.names():
            try:
                _check(name, getattr(self, name))
            except ValueError as error:
                if name not in self.origins:
                    raise
                raise ValueError(f"{self.origins[name]}: {error}") from None
        self._refuse_what_needs_kernels()
        for name in ("stride", "extrapolate"):
            if not self.compress and getattr(self, name) != getattr(Settings, name):
                raise ValueError(
                    f"{name} shapes the tables of a compressed model and does nothing "
                    "else; give compress=True with it, or leave it out"
                )

    def _refuse_what_needs_kernels(self) -> None:
        for name, value in (("backward", "cohort"), ("precision", "fast")):
            if self.kernels == "torch" and getattr(self, name) == value:
                raise ValueError(
                    f'{name}="{value}" needs kernels, which kernels="torch" rules out; '
                    "leave one of them out"
                )

    @classmethod
    def names(cls) -> list[str]:
        """Names of all settings."""
        return [
            field.name for field in dataclasses.fields(cls) if field.name != "origins"
        ]

    @classmethod
    def from_keywords(cls, **keywords: Any) -> "Settings":
        """Make settings from keyword arguments of any name.

        What is not given comes from the environment variables of ``environment.py``.

        Raises:
            TypeError: a keyword is no setting.
            ValueError: as the class itself, or a variable has an impossible value.
        """
        known = cls.names()
        unknown = sorted(keywords.keys() - set(known))
        if unknown:
            raise TypeError(
                f"unknown setting {', '.join(unknown)}; the settings are "
                f"{', '.join(known)}"
            )
        defaults, origins = settings_from_environment(os.environ)
        origins = {k: v for k, v in origins.items() if k not in keywords}
        return cls(**{**defaults, **keywords}, origins=origins)

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
        sentences = [f"{what}{where}, {why}.", self._compiling(model), self._kept(model)]
        if self.precision in _ROUNDING:
            sentences.append(_ROUNDING[self.precision])
        if self.origins:
            sentences.append(f"From the environment: {', '.join(self.origins.values())}.")
        return " ".join(sentences)

    def _compiling(self, model: nn.Module | None) -> str:
        """Whether code is compiled, and why."""
        if self.compile is False:
            return "Not compiled, as asked by compile=False."
        if model is None:
            if self.compile:
                return "Compiled, as asked by compile=True."
            return "Compiled on CUDA devices only."
        from .compiled_model import why_not_compiled

        reason = why_not_compiled(model, self)
        return f"Not compiled: {reason}." if reason else "Compiled."

    def _kept(self, model: nn.Module | None) -> str:
        """What is kept for the forces."""
        if model is None or self.backward != "auto" or self.compile is False:
            return _KEPT[self.backward]
        from .compiled_model import why_not_compiled
        from .recorded_model import may_record

        if why_not_compiled(model, self):
            return _KEPT["auto"]
        return _RECORDED if may_record(model, self) else _KEPT["stream"]

    def _arithmetic(self, model: nn.Module | None) -> tuple[str, str]:
        """What runs the arithmetic, and why."""
        asked = f'as asked by kernels="{self.kernels}"'
        if self.kernels == "torch":
            return "Plain PyTorch", asked
        if model is None:
            return "Triton kernels where they can run", asked
        # Settings can be had without PyTorch's weight; a model cannot.
        from .fusing import why_no_kernels
        from .models.classic.compress import is_compressed

        on_device = asked if self.kernels == "triton" else "because it is a CUDA device"
        if is_compressed(model):
            if model.device.type == "cuda":
                what = "Triton kernels for the tables and plain PyTorch for the rest"
                return what, on_device
            return "Plain PyTorch", "because the Triton kernels need a CUDA device"
        why = why_no_kernels(model, self)
        if why is None:
            return "Triton kernels for the edges and PyTorch for the rest", on_device
        return "Plain PyTorch", f"because {why}"


_CHOICES: dict[str, tuple[str, ...]] = {
    "kernels": ("auto", "torch", "triton"),
    "backward": ("auto", "native", "cohort", "stream"),
    "precision": ("exact", "fast", "tf32"),
}
"""Accepted values of the fields that take names."""

_KEPT = {
    "auto": "For the forces all activations are kept where they fit into half of the "
    "memory, else edges are evaluated again in cohorts.",
    "native": "For the forces all activations are kept.",
    "cohort": "For the forces all activations are kept, and the backward of the SO(2) "
    "layers goes over edges in cohorts.",
    "stream": "For the forces edges are evaluated again in cohorts.",
}

_RECORDED = (
    "For the forces all activations are kept, in evaluations recorded as CUDA graphs, "
    "where they fit into a tenth of the memory; else edges are evaluated again in "
    "cohorts."
)

_ROUNDING = {
    "fast": "Matrix products are sums of three products in float16.",
    "tf32": "Matrix products are rounded to TF32.",
}

_CONDITIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "cohort_edges": (
        "a positive multiple of 16",
        lambda x: _is_number(x, int) and x > 0 and x % 16 == 0,
    ),
    "compile": (
        "True, False or None",
        lambda x: x is None or isinstance(x, bool),
    ),
    "deterministic": ("True or False", lambda x: isinstance(x, bool)),
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
    raise ValueError(f"{name} must be {allowed}, not {value!r}")


def _is_number(value: Any, kind: type = Real) -> bool:
    return (
        isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
    )


def _precision(model: nn.Module) -> str:
    return str(model.dtype).removeprefix("torch.")
