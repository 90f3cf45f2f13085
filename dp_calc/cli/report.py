"""What a finished run of molecular dynamics looked like: averages and a picture."""

from pathlib import Path

import numpy as np

from ..trajectory_stats import linear_drift
from .checkpoint import safely_replacing
from .console import print_fields
from .picture import draw_dynamics

__all__ = ["report"]

_FEWEST_ROWS = 6


def report(log: Path, picture: Path, n_atoms: int) -> None:
    """Print averages over all rows of a log and draw them.

    Args:
        log: the table that the run wrote.
        picture: PNG file to write.
        n_atoms: for energies per atom.
    """
    with log.open() as file:
        columns = file.readline().strip().split(",")
        rows = np.loadtxt(file, delimiter=",", ndmin=2)
    series = dict(zip(columns, rows.T, strict=True))
    times, energies = series["time_fs"], series["total_energy_eV"] / n_atoms
    pressures = series.get("pressure_GPa")
    fields = [("temperature", f"{_mean(series['temperature_K'], '.1f')} K")]
    if pressures is not None:
        fields.append(
            ("pressure", f"{_mean(pressures, '.4f')} GPa, kinetic part included")
        )
        fields.append(("volume", f"{_mean(series['volume_A3'], '.3f')} Å³"))
    if len(times) >= _FEWEST_ROWS:
        drift = linear_drift(times, energies)
        slope, error = drift.slope * 1e9, drift.standard_error * 1e9
        fields.append(
            ("total energy", f"changes by {slope:.1f} ± {error:.1f} µeV/atom per ps")
        )
    print_fields(fields)
    with safely_replacing(picture) as temporary:
        draw_dynamics(temporary, times, energies, series["temperature_K"], pressures)


def _mean(values: np.ndarray, spec: str) -> str:
    return f"{values.mean():{spec}} on average, fluctuates by {values.std():{spec}}"
