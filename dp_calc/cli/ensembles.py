"""The ensembles of ``dp-calc md``, and what each of them needs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ase import Atoms

__all__ = ["ENSEMBLES", "check_ensemble", "defaults_of"]

ENSEMBLES = {
    "nve": "constant energy (velocity Verlet)",
    "langevin": "constant temperature (Langevin)",
    "npt": "constant temperature and pressure, cell of constant shape (MTK)",
    "npt-cell": "the same with the whole cell free (MTK)",
    "npt-berendsen": "approach to a temperature and pressure (Berendsen; no ensemble)",
}

_BAROSTAT = {"tau_t_fs": 100.0, "tau_p_fs": 1000.0}
_DEFAULTS: dict[str, dict[str, float]] = {
    "nve": {},
    "langevin": {"friction_per_ps": 10.0},
    "npt": _BAROSTAT,
    "npt-cell": _BAROSTAT,
    "npt-berendsen": {**_BAROSTAT, "compressibility_per_gpa": 0.46},
}
_SPECIAL = ("pressure_gpa", "friction_per_ps", "tau_t_fs", "tau_p_fs",
            "compressibility_per_gpa")  # fmt: skip


def defaults_of(ensemble: str) -> dict[str, float]:
    """What an ensemble has that was not asked for."""
    return _DEFAULTS[ensemble]


def check_ensemble(settings: Mapping[str, Any], atoms: "Atoms") -> None:
    """Refuse settings that are missing, would be ignored, or do not fit the structure.

    Raises:
        ValueError: the message says what to change.
    """
    ensemble = settings["ensemble"]
    known = {*_DEFAULTS[ensemble], *(["pressure_gpa"] if _is_npt(ensemble) else [])}
    for name in _SPECIAL:
        if settings[name] is not None and name not in known:
            raise ValueError(
                f"{_option(name)} has no meaning for the ensemble {ensemble}; leave it "
                "out, or choose another --ensemble"
            )
    if _is_npt(ensemble) and settings["pressure_gpa"] is None:
        raise ValueError(
            f"the ensemble {ensemble} needs --pressure-gpa (1 bar is 0.0001 GPa)"
        )
    if ensemble != "nve" and not settings["temperature_k"]:
        raise ValueError(f"the ensemble {ensemble} needs --temperature-k above 0")
    _check_velocities(settings, atoms)
    _check_structure(ensemble, atoms)


def _check_velocities(settings: Mapping[str, Any], atoms: "Atoms") -> None:
    drawn = settings["velocities"] == "drawn"
    temperature = settings["temperature_k"]
    if drawn and temperature is None:
        raise ValueError(
            "the file has no velocities; give --temperature-k, for which they are drawn"
        )
    if not drawn and temperature is not None and settings["ensemble"] == "nve":
        raise ValueError(
            "the file has velocities, so that --temperature-k would change nothing; "
            "leave it out, or draw others with --new-velocities"
        )


def _check_structure(ensemble: str, atoms: "Atoms") -> None:
    from ..structure import why_no_stress

    if len(atoms) == 0:
        raise ValueError("the structure has no atoms")
    free = atoms.get_number_of_degrees_of_freedom()
    if free <= (0 if atoms.constraints or ensemble == "langevin" else 3):
        raise ValueError(
            "nothing in this structure can move: "
            + ("the constraints of the file hold every atom" if atoms.constraints
               else f"a single atom has no temperature in the ensemble {ensemble}")
        )  # fmt: skip
    if not _is_npt(ensemble):
        return
    if not atoms.pbc.all():
        raise ValueError(
            f"the ensemble {ensemble} needs a structure that is periodic along all axes, "
            f"but axis {int(atoms.pbc.argmin())} is open; take --ensemble langevin"
        )
    reason = why_no_stress(atoms)
    if reason:
        raise ValueError(f"the ensemble {ensemble} cannot be had: {reason}")
    if atoms.constraints:
        raise ValueError(
            f"the ensemble {ensemble} cannot keep the constraints of the file; remove "
            "them, or take --ensemble langevin"
        )


def _is_npt(ensemble: str) -> bool:
    return ensemble.startswith("npt")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
