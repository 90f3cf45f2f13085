"""From tensors of an evaluation to the results of a calculator."""

from typing import Any

import numpy as np
from ase import Atoms

from .committee import CommitteeOutputs
from .engine import Outputs
from .structure import why_no_stress

__all__ = ["collect_results", "stress_from_virial"]


def collect_results(outputs: Outputs, atoms: Atoms) -> dict[str, Any]:
    """Results by name, as floats or float64 arrays; stress only where there is one."""
    energy = outputs.energy.item()
    results: dict[str, Any] = {
        "energy": energy,
        "free_energy": energy,
        "energies": outputs.energies.cpu().numpy(),
        "forces": outputs.forces.cpu().numpy(),
        "virial": outputs.virial.cpu().numpy(),
    }
    if outputs.magnetic_forces is not None:
        results["magnetic_forces"] = outputs.magnetic_forces.cpu().numpy()
    if isinstance(outputs, CommitteeOutputs):
        results["energy_std"] = outputs.energy_std.item()
        results["forces_std"] = outputs.forces_std.cpu().numpy()
    if why_no_stress(atoms) is None:
        results["stress"] = stress_from_virial(results["virial"], atoms)
    return results


def stress_from_virial(virial: np.ndarray, atoms: Atoms) -> np.ndarray:
    """Stress in ASE's sign and Voigt order from virials, (..., 3, 3) -> (..., 6)."""
    symmetric = (virial + np.swapaxes(virial, -1, -2)) / 2
    return -symmetric[..., [0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]] / atoms.get_volume()
