"""What of a cell is relaxed along with the atoms."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ase import Atoms
    from ase.filters import FrechetCellFilter

__all__ = ["cell_choice", "cell_filter", "check_cell_choice", "largest_stress"]

_COMPONENTS = ("xx", "yy", "zz", "yz", "xz", "xy")
"""In the order of ASE's stress."""

_ALONG = 1e-6


def cell_choice(text: str) -> str:
    """Type of the option: ``all``, ``hydrostatic``, or components such as ``xx,yy``."""
    if text in ("all", "hydrostatic"):
        return text
    names = set(text.split(","))
    if not names <= set(_COMPONENTS):
        raise argparse.ArgumentTypeError(
            f"the cell relaxes as all, hydrostatic, or in some of "
            f"{','.join(_COMPONENTS)} with commas between, not {text!r}"
        )
    return ",".join(name for name in _COMPONENTS if name in names)


def check_cell_choice(atoms: "Atoms", choice: str, pressure: float) -> None:
    """Refuse a cell that cannot be relaxed as asked.

    Args:
        atoms: the structure.
        choice: see :func:`cell_choice`.
        pressure: in any unit.

    Raises:
        ValueError: there is no stress, or it has no meaning along an open axis.
    """
    from ..structure import why_no_stress

    reason = why_no_stress(atoms)
    if reason:
        raise ValueError(f"--cell cannot be honoured: {reason}")
    if atoms.pbc.all():
        return
    axis = int(atoms.pbc.argmin())
    possible = _meaningful(atoms)
    if not set(_names(choice)) <= set(possible) or choice == "hydrostatic":
        what = f"give --cell {','.join(possible)}" if possible else "leave --cell out"
        raise ValueError(
            f"--cell {choice} would strain the structure along its open axis {axis}, "
            f"where stress has no meaning; {what}"
        )
    if pressure:
        raise ValueError(
            f"a pressure acts from all sides, but axis {axis} of the structure is open; "
            "leave --pressure-gpa out"
        )


def cell_filter(atoms: "Atoms", choice: str, pressure: float) -> "FrechetCellFilter":
    """ASE's filter for a choice; ``pressure`` in eV/Å³."""
    from ase.filters import FrechetCellFilter

    names = _names(choice)
    return FrechetCellFilter(
        atoms,
        mask=[name in names for name in _COMPONENTS],
        hydrostatic_strain=choice == "hydrostatic",
        scalar_pressure=pressure,
    )


def largest_stress(atoms: "Atoms", choice: str, pressure: float) -> float:
    """Largest part of the stress that relaxation can still remove, in eV/Å³."""
    stress = atoms.get_stress()
    stress[:3] += pressure
    if choice == "hydrostatic":
        return abs(float(stress[:3].mean()))
    names = _names(choice)
    return max(
        abs(float(part))
        for part, name in zip(stress, _COMPONENTS, strict=True)
        if name in names
    )


def _names(choice: str) -> tuple[str, ...]:
    return _COMPONENTS if choice in ("all", "hydrostatic") else tuple(choice.split(","))


def _meaningful(atoms: "Atoms") -> list[str]:
    """Components whose two directions lie in the span of the periodic axes."""
    import numpy as np

    span = np.linalg.qr(np.array(atoms.cell)[atoms.pbc].T)[0]
    inside = dict(zip("xyz", np.linalg.norm(span, axis=1) > 1 - _ALONG, strict=True))
    return [name for name in _COMPONENTS if inside[name[0]] and inside[name[1]]]
