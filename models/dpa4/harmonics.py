"""Real spherical harmonics, rotation generators and rows of the Wigner matrix.

Convention: ``S_l(z) = (m == 0)``, ``sum_m S_lm^2 = 1`` on the unit sphere, degree 1 is
``(y, z, -x)``. The Wigner matrix satisfies ``D(R) S(r) = S(R r)``.
"""

from math import factorial, sqrt

import numpy as np
import torch
from torch import Tensor, nn

from .layout import degree_of_row, packed_size
from .linear import constant

__all__ = ["WignerRows", "edge_frame", "generators", "ladder_step", "spherical_harmonics"]


def spherical_harmonics(unit: Tensor, lmax: int) -> Tensor:
    """Evaluate S_lm on unit vectors, (..., 3) -> (..., (lmax + 1)^2), packed rows."""
    x, y, z = unit.unbind(-1)
    cos_m, sin_m = torch.ones_like(x), torch.zeros_like(x)  # of m*phi, times sin(theta)^m
    rows = {}
    for m in range(lmax + 1):
        for l, legendre in _legendre_over_sin(z, lmax, m):
            if m == 0:
                rows[l, 0] = legendre
            else:
                norm = (-1) ** m * sqrt(2 * factorial(l - m) / factorial(l + m))
                rows[l, m] = norm * legendre * cos_m
                rows[l, -m] = -norm * legendre * sin_m
        cos_m, sin_m = x * cos_m - y * sin_m, x * sin_m + y * cos_m
    ordered = [rows[l, m] for l in range(lmax + 1) for m in range(-l, l + 1)]
    return torch.stack(ordered, dim=-1)


def _legendre_over_sin(z: Tensor, lmax: int, m: int):
    """Yield (l, P_lm(z) / sin(theta)^m) for l = m..lmax, without the phase (-1)^m."""
    previous, current = torch.zeros_like(z), torch.full_like(z, _odd_factorial(m))
    yield m, current
    for l in range(m + 1, lmax + 1):
        following = ((2 * l - 1) * z * current - (l + m - 1) * previous) / (l - m)
        previous, current = current, following
        yield l, current


def _odd_factorial(m: int) -> float:
    return float(np.prod(np.arange(1, 2 * m, 2)))


def generators(lmax: int) -> np.ndarray:
    """J_k with ``S(exp(theta k) r) = exp(theta J_k) S(r)`` for k = x, y, z: (3, D, D)."""
    size = packed_size(lmax)
    result = np.zeros((3, size, size))
    for l in range(lmax + 1):
        m = np.arange(-l, l + 1)
        raising = np.diag(np.sqrt((l - m[:-1]) * (l + m[:-1] + 1.0)), 1)  # Y_m -> Y_m+1
        lowering = raising.T
        momentum = [
            (raising + lowering) / 2,
            (raising - lowering) / 2j,
            np.diag(m).astype(float),
        ]
        to_complex = _complex_from_real(l)
        block = slice(l * l, (l + 1) ** 2)
        for k in range(3):
            real = np.linalg.inv(to_complex) @ (1j * momentum[k]) @ to_complex
            result[k, block, block] = real.real
    return result


def _complex_from_real(l: int) -> np.ndarray:
    """U with ``Y = U S``: complex harmonics (Condon-Shortley phase) from real ones."""
    u = np.zeros((2 * l + 1, 2 * l + 1), dtype=complex)
    u[l, l] = 1
    for m in range(1, l + 1):
        u[l + m, [l + m, l - m]] = np.array([1, -1j]) / sqrt(2)
        u[l - m, [l + m, l - m]] = (-1) ** m * np.array([1, 1j]) / sqrt(2)
    return u


def edge_frame(unit: Tensor) -> Tensor:
    """Rotation R with ``R unit = z``, (..., 3) -> (..., 3, 3); its rows are the axes.

    Any roll about the edge gives the same energy, so the minimal rotation is used; it is
    singular at -z, where a second chart (half a turn about y first) takes over.
    """
    x, y, z = unit.unbind(-1)
    s = torch.where(z > -0.5, 1.0, -1.0).to(unit.dtype)
    d = 1 + s * z
    first = torch.stack([s * (1 - x * x / d), -s * x * y / d, -x], dim=-1)
    second = torch.stack([-x * y / d, 1 - y * y / d, -s * y], dim=-1)
    return torch.stack([first, second, unit], dim=-2)


class WignerRows(nn.Module):
    """Rows |m| <= mmax of the Wigner matrix of every degree up to lmax.

    Row 0 holds the harmonics of the frame's third axis; the ladder operator about the
    first two axes raises |m| one by one. Everything is polynomial in the frame, so all
    derivatives exist.
    """

    def __init__(self, lmax: int, mmax: int):
        super().__init__()
        self.lmax, self.mmax = lmax, mmax
        jays = generators(lmax).transpose(1, 0, 2).reshape(packed_size(lmax), -1)
        self.jays = constant(jays)  # (D, 3 D)
        steps = [ladder_step(lmax, m) for m in range(mmax)]
        self.steps = constant(np.array(steps))

    def forward(self, frame: Tensor) -> Tensor:
        """Rotations (..., 3, 3) -> (..., 2 mmax + 1, D).

        Entry [mmax + m, (l, m')] is ``D^l[m, m']``, zero where |m| > l.
        """
        plus, minus = spherical_harmonics(frame[..., 2, :], self.lmax), None
        rows = [plus]
        for m, step in enumerate(self.steps):
            first, second = self._turn(plus, frame)
            if m == 0:
                plus, minus = step * second, step * first
            else:
                first_minus, second_minus = self._turn(minus, frame)
                plus, minus = step * (second - first_minus), step * (first + second_minus)
            rows = [minus, *rows, plus]
        return torch.stack(rows, dim=-2)

    def _turn(self, row: Tensor, frame: Tensor) -> tuple[Tensor, Tensor]:
        """Derivative of rows (..., D) for turns about the frame's first two axes."""
        turned = (row @ self.jays).unflatten(-1, (3, row.shape[-1]))
        first, second = (frame[..., :2, :] @ turned).unbind(-2)
        return first, second


def ladder_step(lmax: int, m: int) -> np.ndarray:
    """1 / sqrt((l - m)(l + m + 1)) on packed rows, 0 at l <= m; sqrt(2) more at m = 0."""
    l = degree_of_row(lmax).astype(float)
    product = np.where(l > m, (l - m) * (l + m + 1), np.inf)
    return sqrt(2 if m == 0 else 1) / np.sqrt(product)
