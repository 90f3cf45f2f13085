import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk

from dp_calc.trajectory_stats import linear_drift, radial_distribution


def test_exact_line_has_its_slope_and_no_error():
    times = np.linspace(3.0, 8.0, 50)
    drift = linear_drift(times, 2.0 - 0.75 * times)
    assert drift.slope == pytest.approx(-0.75, abs=1e-12)
    assert drift.standard_error == pytest.approx(0.0, abs=1e-12)
    assert drift.fluctuation == pytest.approx(0.0, abs=1e-12)


def test_slope_is_that_of_least_squares_with_a_large_offset():
    rng = np.random.default_rng(5)
    times = 0.5 * np.arange(121)
    values = -29943.0 + 1e-4 * rng.normal(size=121)
    assert linear_drift(times, values).slope == pytest.approx(
        np.polyfit(times, values - values[0], 1)[0], rel=1e-8
    )


def _correlated(rng: np.random.Generator, n: int, memory: float) -> np.ndarray:
    values = np.zeros(n + 200)
    for i in range(1, n + 200):
        values[i] = memory * values[i - 1] + rng.normal()
    return values[200:]


def _beating(rng: np.random.Generator, n: int) -> np.ndarray:
    phase = rng.uniform(0, 2 * np.pi)
    return np.cos(2 * np.pi * np.arange(n) / 10 + phase) + 0.3 * _correlated(rng, n, 0.8)


@pytest.mark.parametrize(
    "noise",
    [
        lambda rng: rng.normal(size=121),
        lambda rng: _correlated(rng, 121, 0.5),
        lambda rng: _correlated(rng, 121, 0.8),
        lambda rng: _beating(rng, 121),
    ],
    ids=["independent", "weakly correlated", "correlated", "oscillating"],
)
def test_two_standard_errors_cover_the_true_slope(noise):
    rng = np.random.default_rng(11)
    times = 0.5 * np.arange(121)
    fits = [linear_drift(times, 0.3 * times + noise(rng)) for _ in range(400)]
    covered = np.mean([abs(f.slope - 0.3) < 2 * f.standard_error for f in fits])
    assert covered > 0.92


def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match="needs 6 samples, not 5"):
        linear_drift(np.arange(5.0), np.arange(5.0))


def test_radial_distribution_of_a_crystal_counts_its_shells():
    atoms = bulk("Ar", "fcc", a=5.2, cubic=True).repeat(3)
    r, g = radial_distribution([atoms], "Ar", n_bins=78)
    width = r[1] - r[0]
    density = len(atoms) / atoms.get_volume()
    per_bin = g * 4 / 3 * np.pi * ((r + width / 2) ** 3 - (r - width / 2) ** 3) * density
    per_bin *= (len(atoms) - 1) / len(atoms)
    for distance, neighbors in [(5.2 / 2**0.5, 12), (5.2, 6), (5.2 * 1.5**0.5, 24)]:
        near = np.abs(r - distance) < 1.01 * width
        assert per_bin[near].sum() == pytest.approx(neighbors)


def test_radial_distribution_of_an_ideal_gas_is_one_up_to_the_largest_sphere():
    rng = np.random.default_rng(2)
    cell = np.array([[9.0, 0, 0], [2.0, 8.0, 0], [1.0, -2.0, 8.5]])
    frames = [
        Atoms("O40H5", scaled_positions=rng.random((45, 3)), cell=cell, pbc=True)
        for _ in range(60)
    ]
    r, g = radial_distribution(frames, "O", n_bins=8)
    heights = abs(np.linalg.det(cell)) / np.linalg.norm(
        np.cross(cell[[1, 2, 0]], cell[[2, 0, 1]]), axis=1
    )
    assert r[-1] + (r[1] - r[0]) / 2 == pytest.approx(heights.min() / 2)
    assert g[3:] == pytest.approx(np.ones(5), abs=0.1)
