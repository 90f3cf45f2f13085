"""Quadrature grids on the sphere and on SO(3) as synthesis and analysis matrices.

Products on the grid are products of band-limited functions, exact for any rule of degree
3 L and 3 K + 1 rolls: the grid is a device, its points and orientation do not matter.
"""

from functools import lru_cache

import numpy as np
import torch
from scipy.integrate import lebedev_rule

from .harmonics import WignerRows, edge_frame
from .layout import degree_of_row, packed_size

__all__ = ["frame_orders", "so3_grid", "sphere_grid"]

_LEBEDEV_DEGREES = (*range(3, 32, 2), *range(35, 132, 6))


def frame_orders(kmax: int) -> list[int]:
    """Order of the frames along the channel axis: 0, -1, +1, -2, +2, ..."""
    return [0] + [sign * k for k in range(1, kmax + 1) for sign in (-1, 1)]


@lru_cache
def so3_grid(lmax: int, kmax: int) -> tuple[np.ndarray, np.ndarray]:
    """Matrices between coefficients ``(l m, k)`` and values on a grid of rotations.

    Returns:
        synthesis: (G, D n_K), entry ``D^l[k, m](R_g)``, zero where |k| > l.
        analysis: (D n_K, G), its exact inverse on |k| <= l.
    """
    points, weights = _lebedev(3 * lmax)
    n_roll = 3 * kmax + 1 if kmax else 1
    rolls = np.arange(n_roll) * 2 * np.pi / n_roll
    rotations = (
        _roll_matrices(rolls)[None] @ edge_frame(torch.as_tensor(points)).numpy()[:, None]
    )
    rows = WignerRows(lmax, kmax)(torch.as_tensor(rotations)).numpy()
    rows = rows[..., [kmax + k for k in frame_orders(kmax)], :]  # (points, rolls, n_K, D)
    synthesis = rows.reshape(len(points) * n_roll, -1, packed_size(lmax)).transpose(
        0, 2, 1
    )
    weight = np.repeat(weights, n_roll) / n_roll
    degree = 2 * degree_of_row(lmax) + 1
    analysis = synthesis * weight[:, None, None] * degree[:, None]
    size = len(weight)
    return synthesis.reshape(size, -1), np.ascontiguousarray(analysis.reshape(size, -1).T)


@lru_cache
def sphere_grid(lmax: int, mmax: int) -> tuple[np.ndarray, np.ndarray]:
    """The same on the sphere, (G, D) and (D, G).

    The format has a factor ``sqrt(L + 1)``, and where orders above ``mmax`` are absent a
    factor ``sqrt((2 l + 1) / (2 mmax + 1))`` on both matrices for degrees l > mmax.
    """
    synthesis, analysis = so3_grid(lmax, 0)
    l = degree_of_row(lmax)
    gain = np.sqrt(np.where(l > mmax, (2 * l + 1) / (2 * mmax + 1), 1))
    return synthesis * gain / np.sqrt(lmax + 1), analysis * gain[:, None] * np.sqrt(
        lmax + 1
    )


def _lebedev(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (P, 3) and weights that sum to one, exact up to ``degree``."""
    available = next(d for d in _LEBEDEV_DEGREES if d >= degree)
    points, weights = lebedev_rule(available)
    return points.T, weights / (4 * np.pi)


def _roll_matrices(angles: np.ndarray) -> np.ndarray:
    """Rotations about z, (n, 3, 3)."""
    cos, sin, zero, one = np.cos(angles), np.sin(angles), 0 * angles, 1 + 0 * angles
    rows = [[cos, -sin, zero], [sin, cos, zero], [zero, zero, one]]
    return np.array(rows).transpose(2, 0, 1)
