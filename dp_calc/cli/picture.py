"""Picture of a trajectory."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["draw_dynamics", "draw_trajectory"]

_ENERGY, _TEMPERATURE, _DISTANCES = "#1f5fa8", "#b5482a", "#2d7d5a"
_PRESSURE = _DISTANCES


def draw_trajectory(
    path: Path,
    times: np.ndarray,
    energies: np.ndarray,
    temperatures: np.ndarray,
    distribution: tuple[np.ndarray, np.ndarray],
) -> None:
    """Draw energy conservation, temperature and O-O distances.

    Args:
        path: PNG file to write.
        times: in fs, (n,).
        energies: total energy minus its mean, in eV per atom, (n,).
        temperatures: in K, (n,).
        distribution: distances in Å and radial distribution function there.
    """
    # A figure of its own, without pyplot: the caller's backend stays as it is.
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _curve(left, times, energies * 1e6, _ENERGY, "time (fs)", "total energy (µeV/atom)")
    slope, offset = np.polyfit(times, energies * 1e6, 1)
    left.plot(times, slope * times + offset, color="0.4", linestyle="--", label="fit")
    left.legend(frameon=False)
    left.set_title("Energy, deviation from the mean")
    _curve(middle, times, temperatures, _TEMPERATURE, "time (fs)", "temperature (K)")
    middle.set_title("Temperature")
    _curve(right, *distribution, _DISTANCES, "O-O distance (Å)", "g(r)")
    right.axhline(1.0, color="0.7", linewidth=0.8)
    right.set_title("O-O radial distribution")
    figure.savefig(path, dpi=120)


def draw_dynamics(
    path: Path,
    times: np.ndarray,
    energies: np.ndarray,
    temperatures: np.ndarray,
    pressures: np.ndarray | None,
) -> None:
    """Draw energy, temperature and pressure over time.

    Args:
        path: PNG file to write, whatever its ending.
        times: in fs, (n,).
        energies: total energy in eV per atom, (n,).
        temperatures: in K, (n,).
        pressures: in GPa, (n,); None where there is no pressure.
    """
    series = [
        (1e3 * (energies - energies.mean()), _ENERGY, "total energy - mean (meV/atom)"),
        (temperatures, _TEMPERATURE, "temperature (K)"),
    ]
    if pressures is not None:
        series.append((pressures, _PRESSURE, "pressure (GPa)"))
    figure = Figure(figsize=(4 * len(series), 3.6), layout="constrained")
    for axes, (values, color, label) in zip(
        figure.subplots(1, len(series)), series, strict=True
    ):
        _curve(axes, times, values, color, "time (fs)", label)
    figure.savefig(path, dpi=120, format="png")


def _curve(
    axes: Axes, x: np.ndarray, y: np.ndarray, color: str, x_label: str, y_label: str
) -> None:
    axes.plot(x, y, color=color)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.spines[["top", "right"]].set_visible(False)
