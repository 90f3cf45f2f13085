"""What the kernels of this folder know of spherical harmonics."""

from dataclasses import dataclass

from torch import Tensor

__all__ = ["FrameTables"]


@dataclass(frozen=True)
class FrameTables:
    """Harmonics up to degree L as polynomials in a unit vector, D = (L + 1)^2 of them.

    Attributes:
        powers: powers of x, y and z in each monomial, (3, M), int32.
        coefficients: of the monomials in the harmonics, then in their derivatives for
            turns about x, y and z, (4, M, D).
        step: from a turn about an axis of the frame to the rows of order one, (D,).
        eps: in Å; the length of an edge is ``sqrt(r^2 + eps^2)``.
    """

    powers: Tensor
    coefficients: Tensor
    step: Tensor
    eps: float
