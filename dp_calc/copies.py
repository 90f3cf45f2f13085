"""Copies, pickles and threads: one set of weights, many calculators."""

import copy
import io
import pickle
import threading
from dataclasses import dataclass
from typing import Any

import torch

from . import __version__
from .committee import make_engine
from .models import Potential
from .placement import ordinary_tensors, pick_device
from .processes import is_inherited, note_use
from .settings import Settings

__all__ = ["SharedModel"]


class SharedModel:
    """Part of a calculator that holds the model.

    Copies share model and compiled code; atoms and results are their own. They take
    turns in evaluating, in whatever thread. A pickle carries the weights, so that it
    needs no file.
    """

    settings: Settings
    results: dict[str, Any]

    def _hold(self, model: Potential) -> None:
        note_use(model.device)
        self.model = model
        self._engine = make_engine(model, self.settings)
        self._lock = threading.RLock()

    def get_spin_polarized(self) -> bool:
        """False: no electrons are treated."""
        # Without this method ASE stores one in each instance, a cycle of references that
        # would keep the weights on the device after the calculator is deleted.
        return False

    def __copy__(self) -> "SharedModel":
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "SharedModel":
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        for shared in (self.model, self._engine, self._lock):
            memo[id(shared)] = shared
        with self._lock:
            for name, value in self.__dict__.items():
                new.__dict__[name] = copy.deepcopy(value, memo)
        return new

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = self.__dict__ | {"results": dict(self.results)}
        del state["_engine"], state["_lock"]
        return state | {"model": _pack(self.model)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._hold(_unpack(state["model"]))


@dataclass(frozen=True)
class _Packed:
    """A model as bytes.

    Tensors would travel to another process as handles of shared memory, and would ask for
    the device that they were on before anything could be said about it.
    """

    version: str
    device: str
    content: bytes


def _pack(model: Potential) -> _Packed:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    return _Packed(__version__, str(model.device), buffer.getvalue())


def _unpack(packed: _Packed) -> Potential:
    if packed.version != __version__:
        raise pickle.UnpicklingError(
            f"this calculator was pickled by dp_calc {packed.version} and cannot be read "
            f"by {__version__}; make it again from its model file"
        )
    # The pickle around it could run anything already.
    content = io.BytesIO(packed.content)
    place = _place(packed.device)
    with ordinary_tensors():
        return torch.load(content, map_location=place, weights_only=False)


def _place(name: str) -> torch.device:
    """Device for the weights."""
    device = torch.device(name)
    if device.type == "cuda" and is_inherited(device):
        # It cannot be used, as evaluating will say. An error now would end a worker of a
        # pool while it reads its task, and the pool would replace it without an end.
        return torch.device("cpu")
    try:
        return pick_device(device)
    except ValueError as error:
        raise ValueError(
            f"this calculator was pickled on {name}: {error}; pickle one that was made "
            "with a device that is here, or make it from its model file"
        ) from None
