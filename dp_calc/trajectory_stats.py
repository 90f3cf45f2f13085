"""Numbers that tell whether a trajectory is sound."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

__all__ = ["Drift", "linear_drift", "radial_distribution"]

_FEWEST_BLOCKS = 6


@dataclass(frozen=True)
class Drift:
    """A straight line through a time series.

    Attributes:
        slope: change per unit of time.
        standard_error: of the slope, corrected for correlated samples.
        fluctuation: standard deviation of the samples about the line.
        block: samples per block behind ``standard_error``.
    """

    slope: float
    standard_error: float
    fluctuation: float
    block: int


def linear_drift(times: np.ndarray, values: np.ndarray) -> Drift:
    """Fit a line by least squares, with an error that allows for correlated samples.

    Neighbouring samples of a trajectory are alike, so the textbook error is too small;
    averages over blocks longer than the correlation are independent. The fit is repeated
    with the averages over blocks of 1, 2, 3, ... samples while at least 6 blocks remain,
    and the largest error counts: a little too large for independent samples, too small
    only where the correlation time exceeds a twentieth of the series. The idea is that of
    Flyvbjerg and Petersen, J. Chem. Phys. 91, 461 (1989), for a slope instead of a mean.

    Args:
        times: evenly spaced, (n,), n >= 6.
        values: (n,).

    Raises:
        ValueError: fewer than 6 samples.
    """
    if len(times) < _FEWEST_BLOCKS:
        raise ValueError(
            f"a slope with an error needs {_FEWEST_BLOCKS} samples, not {len(times)}"
        )
    slope, _, fluctuation = _fit(times, values)
    errors = {
        block: _fit(_averages(times, block), _averages(values, block))[1]
        for block in range(1, len(times) // _FEWEST_BLOCKS + 1)
    }
    block = max(errors, key=errors.__getitem__)
    return Drift(slope, errors[block], fluctuation, block)


def radial_distribution(
    frames: Sequence[Atoms], symbol: str, n_bins: int = 60
) -> tuple[np.ndarray, np.ndarray]:
    """Radial distribution function of one element, averaged over frames.

    Args:
        frames: periodic structures, all with the cell and the atoms of the first.
        symbol: element; at least two atoms of it.
        n_bins: bins between 0 and the radius of the largest sphere in the cell.

    Returns:
        Bin centres in Å and g(r), both (n_bins,).
    """
    volume = frames[0].get_volume()
    largest = 0.5 / np.linalg.norm(frames[0].cell.reciprocal(), axis=1).max()
    edges = np.linspace(0.0, largest, n_bins + 1)
    selected = np.array(frames[0].symbols) == symbol
    n = int(selected.sum())
    counts = np.zeros(n_bins)
    for frame in frames:
        distances = frame[selected].get_all_distances(mic=True)
        counts += np.histogram(distances[np.triu_indices(n, k=1)], bins=edges)[0]
    shells = 4 / 3 * np.pi * np.diff(edges**3)
    ideal = len(frames) * n * (n - 1) / 2 * shells / volume
    return (edges[1:] + edges[:-1]) / 2, counts / ideal


def _fit(times: np.ndarray, values: np.ndarray) -> tuple[float, float, float]:
    """Slope, its error for independent samples, and deviation about the line."""
    t = times - times.mean()
    v = values - values.mean()
    spread = t @ t
    slope = t @ v / spread
    deviation = np.sqrt(np.sum((v - slope * t) ** 2) / (len(t) - 2))
    return float(slope), float(deviation / np.sqrt(spread)), float(deviation)


def _averages(series: np.ndarray, block: int) -> np.ndarray:
    usable = len(series) // block * block
    return series[:usable].reshape(-1, block).mean(axis=1)
