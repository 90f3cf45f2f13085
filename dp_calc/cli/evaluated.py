"""A structure with its results, as files of ASE keep both."""

import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ase import Atoms

__all__ = ["FURTHER_ARRAYS", "FURTHER_INFO", "with_results", "without_unwritable"]

_STORED = ("energy", "free_energy", "energies", "forces", "stress")
"""Results that ASE's container of results has a place for."""

FURTHER_INFO = ("virial", "energy_std")
FURTHER_ARRAYS = ("magnetic_forces", "forces_std")
"""Results that it has none for, of a structure and of its atoms."""


def with_results(frame: "Atoms", results: dict[str, Any]) -> "Atoms":
    """Copy of a structure with results, or with ``info["error"]`` if there are none.

    Results of any earlier calculation are left out: they would look like ours.
    """
    from ase.calculators.singlepoint import SinglePointCalculator

    copy = frame.copy()
    for name in (*_STORED, *FURTHER_INFO, *FURTHER_ARRAYS, "error"):
        copy.info.pop(name, None)
        copy.arrays.pop(name, None)
    if "error" in results:
        copy.info["error"] = results["error"].partition(": ")[2] or results["error"]
        return copy
    stored = {name: results[name] for name in _STORED if name in results}
    copy.calc = SinglePointCalculator(copy, **stored)
    copy.info.update({n: results[n] for n in FURTHER_INFO if n in results})
    copy.arrays.update({n: results[n] for n in FURTHER_ARRAYS if n in results})
    return copy


def without_unwritable(frame: "Atoms", fits: Any, kind: str) -> "Atoms":
    """Leave out what a format has no way to write, with a warning.

    Args:
        frame: a structure; it loses these entries.
        fits: tells of a structure whether it can be written.
        kind: the format, as the warning calls it.
    """
    if fits(frame):
        return frame
    calc, frame.calc = frame.calc, None
    info, arrays = dict(frame.info), dict(frame.arrays)
    frame.info.clear()
    for name in set(arrays) - {"numbers", "positions"}:
        del frame.arrays[name]
    for kept, container in ((info, frame.info), (arrays, frame.arrays)):
        for name, value in kept.items():
            container[name] = value
            if not fits(frame):
                del container[name]
                warnings.warn(f"{name!r} cannot be written to {kind}", stacklevel=2)
    frame.calc = calc
    return frame
