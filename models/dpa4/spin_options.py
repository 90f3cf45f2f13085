"""Reading the options of models whose atoms carry spins."""

from typing import Any

from .config import VirtualSpin
from .option_checks import bad_value
from .option_types import is_number

__all__ = ["magnetic_types", "read_virtual_spin", "spin_scheme"]


def spin_scheme(params: dict[str, Any]) -> str | None:
    """How spins enter the model: "native", "deepspin" (virtual atoms), None for not."""
    spin = params.get("spin")
    if spin is None:
        return None
    scheme = str(spin.get("scheme", "deepspin")).lower()
    if scheme not in ("native", "deepspin"):
        raise bad_value("spin", "scheme", scheme, "native or deepspin")
    return scheme


def magnetic_types(spin: dict[str, Any], type_map: tuple[str, ...]) -> tuple[bool, ...]:
    """Whether each type carries a spin.

    ``use_spin`` has three forms: a flag for every type, or the indices or the names of
    the magnetic types.
    """
    stored = spin.get("use_spin")
    if not isinstance(stored, list | tuple):
        raise bad_value("spin", "use_spin", stored, "a list")
    if any(isinstance(s, bool) for s in stored):
        if len(stored) != len(type_map) or not all(isinstance(s, bool) for s in stored):
            raise bad_value("spin", "use_spin", stored, f"{len(type_map)} flags")
        return tuple(stored)
    names = dict(enumerate(type_map)) | {name: name for name in type_map}
    if not all(isinstance(s, int | str) and s in names for s in stored):
        raise bad_value("spin", "use_spin", stored, "types of the model")
    named = {names[s] for s in stored}
    return tuple(t in named for t in type_map)


def read_virtual_spin(params: dict[str, Any], type_map: tuple[str, ...]) -> VirtualSpin:
    """Read the options of the scheme deepspin.

    ``virtual_scale`` is one number, one for each type, or one for each magnetic type.
    """
    magnetic = magnetic_types(params["spin"], type_map)
    stored = params["spin"].get("virtual_scale")
    scales = (
        list(stored) if isinstance(stored, list | tuple) else [stored] * len(magnetic)
    )
    if len(scales) == sum(magnetic) != len(magnetic):
        given = iter(scales)
        scales = [next(given) if m else 0.0 for m in magnetic]
    numbers = all(map(is_number, scales))
    if len(scales) != len(magnetic) or not numbers:
        raise bad_value("spin", "virtual_scale", stored, "a number, or one for each type")
    return VirtualSpin(
        scales=tuple(
            float(s) if m else None for s, m in zip(scales, magnetic, strict=True)
        ),
        max_neighbors=_max_neighbors(params["descriptor"].get("sel", 120)),
    )


def _max_neighbors(sel: Any) -> int:
    counts = sel if isinstance(sel, list | tuple) else [sel]
    if not all(is_number(n) and isinstance(n, int) and n > 0 for n in counts):
        raise bad_value("descriptor", "sel", sel, "numbers of neighbours")
    return sum(counts)
