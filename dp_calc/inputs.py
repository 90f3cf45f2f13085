"""What a model reads from ``Atoms`` beside the geometry: charge, spins, parameters."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from .models import InputSpec

__all__ = ["ModelInputs"]

_CHARGES, _SPIN_ROWS = (-100, 99), (0, 99)
"""First and last row of a model's tables."""

_PLACES = {
    "charge_spin": (("info", "charge_spin"), ("info", "charge"), ("info", "spin")),
    "spin": (("arrays", "spin"),),
    "fparam": (("info", "fparam"),),
    "aparam": (("info", "aparam"), ("arrays", "aparam")),
}
"""Where each input is looked for: container in ``Atoms``, and key."""

Shape = tuple[int, ...]


class ModelInputs:
    """Reads the further inputs of one model from structures.

    Where they are looked for and in which form is told in the docstring of ``DP``.

    Args:
        specs: ``inputs`` of the model.
    """

    def __init__(self, specs: Sequence[InputSpec]):
        self.specs = tuple(specs)
        self.names = tuple(spec.name for spec in self.specs)

    def read(self, atoms: Atoms) -> dict[str, Tensor]:
        """Check and copy the inputs of a structure.

        Returns:
            By name, float64, on the CPU: (width,), or (N, width) where every atom has its
            own. An input that is not given and not required is left out.

        Raises:
            ValueError: an input is missing, half given, given twice with two values, of
                the wrong kind or shape, not finite, or out of range.
        """
        values = {}
        for spec in self.specs:
            value = _READERS[spec.name](atoms, spec.width)
            if value is not None:
                values[spec.name] = torch.from_numpy(value)
            elif spec.required:
                raise ValueError(f"this model needs {_wanted(spec, len(atoms))}")
        return values

    def changes(self, atoms: Atoms, earlier: Mapping[str, np.ndarray]) -> list[str]:
        """Names of the inputs that differ from those read earlier, by value.

        All names if they cannot be read any more.
        """
        try:
            values = self.read(atoms)
        except ValueError:
            return list(self.names)
        return [n for n in self.names if not _same(values.get(n), earlier.get(n))]

    def unread(self, atoms: Atoms) -> list[str]:
        """What a structure brings for other models, as the caller spells it."""
        places = [p for name in _PLACES.keys() - set(self.names) for p in _PLACES[name]]
        return sorted(
            _spell(container, key)
            for container, key in places
            if key in getattr(atoms, container)
        )


def _read_charge_spin(atoms: Atoms, width: int) -> np.ndarray | None:
    """Charge and spin row, (2,)."""
    name, info = _spell("info", "charge_spin"), atoms.info
    given = [key for key in ("charge", "spin") if key in info]
    pair = None
    if "charge_spin" in info:
        array = _numbers(info["charge_spin"], name)
        pair = _shaped(array, [(2,), (1, 2)], (2,), name, "[charge, spin]")
        _refuse_outside(pair[0], _CHARGES, f"the charge in {name}")
        _refuse_outside(pair[1], _SPIN_ROWS, f"the spin in {name}")
    elif len(given) == 1:
        other = "spin" if given == ["charge"] else "charge"
        raise ValueError(
            f"{_spell('info', given[0])} is given without {_spell('info', other)}; set "
            "both, the total charge and the spin multiplicity"
        )
    values = {key: _whole(info[key], key) for key in given}
    if pair is None:
        return np.array([values["charge"], values["spin"]]) if given else None
    for key, expected in zip(("charge", "spin"), pair, strict=True):
        if values.get(key, expected) != expected:
            raise ValueError(
                f"{name} is {pair.tolist()} but {_spell('info', key)} is "
                f"{values[key]:g}; remove one of them"
            )
    return pair


def _whole(value: Any, key: str) -> float:
    """A charge or spin multiplicity from ``info``."""
    name = _spell("info", key)
    number = float(_shaped(_numbers(value, name), [(), (1,)], (), name, "one number"))
    if key == "spin" and number == 0:
        raise ValueError(
            f"{name} is 0, but it is the spin multiplicity 2S + 1, at least 1; set "
            f"{_spell('info', 'charge_spin')} for a model that counts otherwise"
        )
    _refuse_outside(number, _SPIN_ROWS if key == "spin" else _CHARGES, name)
    return number


def _refuse_outside(number: float, limits: tuple[int, int], what: str) -> None:
    first, last = limits
    if number != np.floor(number) or not first <= number <= last:
        raise ValueError(
            f"{what} is {number:.15g}; it must be a whole number from {first} to {last}"
        )


def _read_spin(atoms: Atoms, width: int) -> np.ndarray | None:
    """Spin of each atom, (N, 3)."""
    if "spin" not in atoms.arrays:
        return None
    name, shape = _spell("arrays", "spin"), (len(atoms), width)
    array = _numbers(atoms.arrays["spin"], name)
    return _shaped(array, [shape], shape, name, "a vector for each atom")


def _read_fparam(atoms: Atoms, width: int) -> np.ndarray | None:
    """Frame parameters, (n,)."""
    if "fparam" not in atoms.info:
        return None
    name = _spell("info", "fparam")
    array = _numbers(atoms.info["fparam"], name)
    shapes = [(width,), (1, width), *([()] if width == 1 else [])]
    return _shaped(array, shapes, (width,), name, "the frame parameters")


def _read_aparam(atoms: Atoms, width: int) -> np.ndarray | None:
    """Parameters of each atom, (N, m)."""
    shape = (len(atoms), width)
    flat = [(), shape[:1]] if width == 1 else []
    for_all = [(width,), (1, width), (shape[0] * width,), (1, *shape)]
    allowed = {"info": [shape, *flat, *for_all], "arrays": [shape, *flat]}
    values = []
    for container, key in _PLACES["aparam"]:
        if key in getattr(atoms, container):
            name = _spell(container, key)
            array = _numbers(getattr(atoms, container)[key], name)
            meaning = "parameters for each atom"
            values.append(_shaped(array, allowed[container], shape, name, meaning))
    if len(values) == 2 and not np.array_equal(values[0], values[1]):
        raise ValueError(
            f"{_spell('info', 'aparam')} and {_spell('arrays', 'aparam')} are given with "
            "different values; remove one of them"
        )
    return values[0] if values else None


_READERS: dict[str, Callable[[Atoms, int], np.ndarray | None]] = {
    "charge_spin": _read_charge_spin,
    "spin": _read_spin,
    "fparam": _read_fparam,
    "aparam": _read_aparam,
}


def _numbers(value: Any, name: str) -> np.ndarray:
    """A copy as float64, of any shape."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # such as a ragged list
        array = np.array(None)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must hold real numbers, not {_short(value)}")
    array = np.array(array, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must hold finite numbers, not {_short(value)}")
    return array


def _shaped(
    array: np.ndarray, allowed: list[Shape], shape: Shape, name: str, meaning: str
) -> np.ndarray:
    """The array in its final shape if it has one of those allowed."""
    if array.shape not in allowed:
        raise ValueError(
            f"{name} has the shape {array.shape}; this model reads {meaning}, of the "
            f"shape {shape}"
        )
    size = int(np.prod(shape))
    if array.size == size:
        return array.reshape(shape)
    return np.broadcast_to(array.reshape(-1), shape).copy()


def _wanted(spec: InputSpec, n_atoms: int) -> str:
    """What is missing, and where it belongs."""
    shape = f"of the shape ({n_atoms}, {spec.width})"
    return {
        "charge_spin": "the total charge and the spin multiplicity; set "
        'atoms.info["charge"] and atoms.info["spin"]',
        "spin": f'the spin of each atom; set atoms.arrays["spin"] to an array {shape} '
        "(initial magnetic moments are not read)",
        "fparam": f'{spec.width} frame parameters; set atoms.info["fparam"]',
        "aparam": 'parameters of each atom; set atoms.arrays["aparam"] to an array '
        f"{shape}",
    }[spec.name]


def _same(one: Tensor | None, other: np.ndarray | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one.numpy(), other)


def _spell(container: str, key: str) -> str:
    return f'atoms.{container}["{key}"]'


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
