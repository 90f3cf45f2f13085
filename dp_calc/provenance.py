"""What a calculator is made of, as plain data that files keep, and back again."""

from collections.abc import Mapping
from typing import Any

import torch

from . import __version__
from .committee import Committee, members_of
from .models import Potential
from .settings import Settings

__all__ = ["Provenance"]


class Provenance:
    """Part of a calculator that says what it is."""

    model: Potential
    device: torch.device
    settings: Settings
    parameters: dict[str, Any]

    def todict(self, skip_default: bool = True) -> dict[str, Any]:
        """Say what the calculator is, in plain data: files of ASE keep it.

        Args:
            skip_default: as ASE has it; nothing is left out, as defaults may change.

        Returns:
            The arguments of ``DP``, and ``"provenance"``: the versions of dp_calc and
            PyTorch and the SHA-256 of the model file when it was read. A neighbour-list
            object is not among them; it changes no result.
        """
        provenance = {
            "dp_calc": __version__,
            "torch": torch.__version__,
            "sha256": self._one_or_all("sha256"),
        }
        return {**self._arguments(), "provenance": provenance}

    @classmethod
    def fromdict(cls, parameters: Mapping[str, Any], **changes: Any) -> "Provenance":
        """Make a calculator from what :meth:`todict` gave.

        Args:
            parameters: from ``todict``, or what ASE read from a file.
            **changes: arguments of ``DP`` to replace, such as ``device``.

        Raises:
            TypeError: they are no such mapping.
            ValueError: they name no model file, or it is not the same file any more.
        """
        is_mapping = isinstance(parameters, Mapping)
        origin = parameters.get("provenance", {}) if is_mapping else None
        if not isinstance(origin, Mapping):
            raise TypeError(
                f"parameters must be what todict() gives, not {parameters!r:.60}"
            )
        arguments = {**parameters, **changes}
        arguments.pop("provenance", None)
        recorded = origin.get("sha256")
        model = arguments.get("model")
        if model is None or (isinstance(model, list) and None in model):
            raise ValueError(
                "these parameters name no model file; give one with model=..., or make "
                "the calculator from the model itself"
            )
        calc = cls(**arguments)
        found = calc._one_or_all("sha256")
        if recorded not in (None, found):
            raise ValueError(
                f"{model} is not the file that these parameters were written for: its "
                f"SHA-256 is {found}, not {recorded}; find that file and give it with "
                "model=..., or take this one by DP(...)"
            )
        return calc

    def _remember(self, type_dict: Mapping[str, int] | None, nlist_backend: str) -> None:
        """Keep what nothing else keeps, and show everything as ``parameters`` of ASE."""
        self._type_dict = None if type_dict is None else _plain(type_dict)
        self._nlist_backend = nlist_backend
        self.parameters.update(self._arguments())

    def _arguments(self) -> dict[str, Any]:
        """Arguments that make the same calculator again; of a committee lists of them."""
        heads = [_source(member, "head") for member in members_of(self.model)]
        return {
            "model": self._one_or_all("path"),
            "head": heads[0] if len(set(heads)) == 1 else heads,
            "type_dict": self._type_dict,
            "nlist_backend": self._nlist_backend,
            "device": str(self.device),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            **{name: getattr(self.settings, name) for name in Settings.names()},
        }

    def _one_or_all(self, name: str) -> str | list[str | None] | None:
        found = [_source(member, name) for member in members_of(self.model)]
        values = [None if value is None else str(value) for value in found]
        return values if isinstance(self.model, Committee) else values[0]


def _source(model: Potential, name: str) -> Any:
    return getattr(getattr(model, "source", None), name, None)


def _plain(type_dict: Mapping[str, int]) -> dict[str, int]:
    return {symbol: int(index) for symbol, index in type_dict.items()}
