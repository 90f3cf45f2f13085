"""Row layouts of spherical-harmonic coefficients.

*Packed*: row ``l*l + l + m``, the layout of every node tensor. Truncating to a lower
degree is a prefix slice.
*By order*: rows grouped by |m|, the layout in which SO(2)-equivariant maps act; order 0
holds ``(l, 0)`` for l = 0..L, order m > 0 holds ``(l, -m)`` for l = m..L, then
``(l, +m)``.
"""

import numpy as np

__all__ = ["degree_of_row", "order_rows", "packed_size"]


def packed_size(lmax: int) -> int:
    """Number of coefficients up to degree ``lmax``, (lmax + 1)^2."""
    return (lmax + 1) ** 2


def degree_of_row(lmax: int) -> np.ndarray:
    """Degree of each packed row, ((lmax + 1)^2,)."""
    return np.repeat(np.arange(lmax + 1), 2 * np.arange(lmax + 1) + 1)


def order_rows(lmax: int, m: int) -> np.ndarray:
    """Packed rows of order |m|, those of -m first: (n,) for m = 0, (2 n,) otherwise."""
    degrees = np.arange(m, lmax + 1)
    centre = degrees * degrees + degrees
    return centre if m == 0 else np.concatenate([centre - m, centre + m])
