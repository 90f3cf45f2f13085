"""Ensembles, starting velocities, and what is measured on the way."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from ase import Atoms
from ase.md.langevin import Langevin
from ase.md.md import MolecularDynamics
from ase.md.nose_hoover_chain import MTKNPT, IsotropicMTKNPT
from ase.md.nptberendsen import NPTBerendsen
from ase.md.verlet import VelocityVerlet
from ase.units import GPa, fs, kB

__all__ = ["Observer", "draw_velocities", "has_velocities", "make_dynamics"]


def has_velocities(atoms: Atoms) -> bool:
    """Whether any atom moves."""
    return bool(atoms.has("momenta") and atoms.get_momenta().any())


def draw_velocities(
    atoms: Atoms, temperature: float, random: np.random.Generator
) -> None:
    """Give atoms velocities of the Maxwell-Boltzmann distribution.

    Without constraints the drift of several atoms is removed, so that on average
    3 N - 3 degrees of freedom have the temperature in K.
    """
    masses = atoms.get_masses()[:, None]
    momenta = random.standard_normal((len(atoms), 3)) * np.sqrt(masses * kB * temperature)
    if not atoms.constraints and len(atoms) > 1:
        momenta -= masses * (momenta.sum(0) / masses.sum())
    atoms.set_momenta(momenta)


def make_dynamics(
    atoms: Atoms, settings: Mapping[str, Any], random: np.random.Generator
) -> MolecularDynamics:
    """Make the integrator of an ensemble; units of the settings are in their names."""
    step = settings["timestep_fs"] * fs
    ensemble = settings["ensemble"]
    if ensemble == "nve":
        return VelocityVerlet(atoms, step)
    if ensemble == "langevin":
        # fixcm would sample the wrong ensemble, and ASE is about to drop it.
        return Langevin(
            atoms, step, temperature_K=settings["temperature_k"],
            friction=settings["friction_per_ps"] / (1000 * fs), rng=random, fixcm=False,
        )  # fmt: skip
    # ASE's thermostats count 3 N degrees of freedom, but the drift is not one of them.
    share = _degrees_of_freedom(atoms, keeps_drift=True) / (3 * len(atoms))
    common = {
        "temperature_K": settings["temperature_k"] * share,
        "pressure_au": settings["pressure_gpa"] * GPa,
    }
    thermostat, barostat = settings["tau_t_fs"] * fs, settings["tau_p_fs"] * fs
    if ensemble == "npt-berendsen":
        compressibility = settings["compressibility_per_gpa"] / GPa
        return NPTBerendsen(
            atoms, step, taut=thermostat, taup=barostat,
            compressibility_au=compressibility, **common,
        )  # fmt: skip
    kind = IsotropicMTKNPT if ensemble == "npt" else MTKNPT
    return kind(atoms, step, tdamp=thermostat, pdamp=barostat, **common)


class Observer:
    """Measures a system while it runs.

    Args:
        atoms: the system.
        ensemble: name of the ensemble; all but Langevin's keep the total momentum.

    Attributes:
        columns: names of what :meth:`measure` gives, units included.
        degrees_of_freedom: over which the temperature is averaged.
    """

    def __init__(self, atoms: Atoms, ensemble: str):
        self._atoms = atoms
        self._keeps_drift = ensemble != "langevin" and not atoms.constraints
        self._bulk = bool(atoms.pbc.all())
        self.degrees_of_freedom = _degrees_of_freedom(atoms, self._keeps_drift)
        self.columns = [
            "step",
            "time_fs",
            "potential_energy_eV",
            "kinetic_energy_eV",
            "total_energy_eV",
            "temperature_K",
        ]
        if self._bulk:
            self.columns += ["pressure_GPa", "volume_A3"]

    def temperature(self) -> float:
        """In K; a drift that the ensemble keeps is no heat."""
        energy = self._atoms.get_kinetic_energy()
        if self._keeps_drift:
            momentum = self._atoms.get_momenta().sum(0)
            energy -= momentum @ momentum / (2 * self._atoms.get_masses().sum())
        return float(2 * energy / (self.degrees_of_freedom * kB))

    def measure(self, step: int, time: float) -> list[float]:
        """One row of the log; the time in fs.

        The pressure includes the part of moving atoms, and exists only where all three
        axes are periodic.
        """
        potential = float(self._atoms.get_potential_energy())
        kinetic = float(self._atoms.get_kinetic_energy())
        row = [step, time, potential, kinetic, potential + kinetic, self.temperature()]
        if self._bulk:
            stress = self._atoms.get_stress(include_ideal_gas=True)
            row += [float(-stress[:3].mean() / GPa), float(self._atoms.get_volume())]
        return row


def _degrees_of_freedom(atoms: Atoms, keeps_drift: bool) -> int:
    return atoms.get_number_of_degrees_of_freedom() - 3 * keeps_drift
