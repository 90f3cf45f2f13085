"""Where the rows of a table lie on the axis of its argument."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Domain"]

_TOLERANCE = 1e-6  # a float32 stride is off by 6e-8 of itself
_NO_OVERFLOW_CHECK = -1.0


_MOST_ROWS = 10_000_000  # some 10 GB with 20 channels; a wrong unit gives more


@dataclass(frozen=True)
class Domain:
    """The argument axis of a table: a fine region, coarse ones beside it.

    One-sided tables are fine in [lower, upper) and coarse in [upper, right). Two-sided
    ones have a coarse region [-right, lower) as well. Rows are counted from the left.

    Attributes:
        lower: left edge of the fine region.
        upper: right edge of the fine region.
        right: right edge of the coarse region.
        fine: width of a fine row.
        coarse: width of a coarse row.
        two_sided: whether there is a coarse region on the left.

    Raises:
        ValueError: the edges are not in order, or a width does not divide its region.
    """

    lower: float
    upper: float
    right: float
    fine: float
    coarse: float
    two_sided: bool

    def __post_init__(self):
        edges = (self.left, self.lower, self.upper, self.right)
        if not all(map(math.isfinite, (*edges, self.fine, self.coarse))):
            raise ValueError(f"every number of a table's domain must be finite: {self}")
        if not self.left <= self.lower < self.upper < self.right:
            raise ValueError(
                f"the edges of the table's domain must rise, but are {edges}; "
                "is the extrapolation factor above 1?"
            )
        if self.fine <= 0 or self.coarse <= 0:
            raise ValueError(f"the table's strides must be positive: {self}")
        if self.rows > _MOST_ROWS:
            raise ValueError(
                f"strides of {self.fine:g} and {self.coarse:g} ask for a table of "
                f"{self.rows:,} rows, more than {_MOST_ROWS:,}; choose larger ones"
            )

    @classmethod
    def from_range(
        cls,
        lower: float,
        upper: float,
        *,
        two_sided: bool,
        stride: float = 0.01,
        extrapolate: float = 5.0,
    ) -> "Domain":
        """Lay out a table for arguments that normally lie in [lower, upper).

        Args:
            lower: left edge of the fine region.
            upper: right edge of the fine region, positive.
            two_sided: whether the coarse region lies on both sides.
            stride: row width; fine and coarse rows are 1 and 10 of it wide in a
                one-sided table, 10 and 100 of it in a two-sided one.
            extrapolate: the coarse region ends at this multiple of ``upper``, above 1.

        Raises:
            ValueError: as the class itself.
        """
        if not upper > 0:
            raise ValueError(
                f"the upper edge of a table must be positive, not {upper}: the coarse "
                "region ends at a multiple of it"
            )
        if not extrapolate > 1:
            raise ValueError(f"extrapolate must be above 1, not {extrapolate}")
        fine = 10 * stride if two_sided else stride
        return cls(lower, upper, upper * extrapolate, fine, 10 * fine, two_sided)

    @classmethod
    def from_info(cls, info: Tensor, two_sided: bool, rows: int) -> "Domain":
        """Read the six stored numbers of a table of so many rows; the last is not used.

        Raises:
            ValueError: as the class itself; or the table has another number of rows.
        """
        domain = cls(*info.tolist()[:5], two_sided)
        if domain.rows != rows:
            sides = "two-sided" if two_sided else "one-sided"
            raise ValueError(
                f"info describes a {sides} table of {domain.rows} rows, but this one has "
                f"{rows}; they do not belong together"
            )
        return domain

    def info(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """The six stored numbers: lower, upper, right, fine, coarse, -1 (no check)."""
        numbers = (self.lower, self.upper, self.right, self.fine, self.coarse)
        return torch.tensor([*numbers, _NO_OVERFLOW_CHECK], dtype=dtype)

    @property
    def left(self) -> float:
        """Left edge of the whole domain."""
        return -self.right if self.two_sided else self.lower

    @property
    def wing(self) -> int:
        """Number of coarse rows on the left."""
        return _rows(self.left, self.lower, self.coarse)

    @property
    def middle(self) -> int:
        """Number of fine rows."""
        return _rows(self.lower, self.upper, self.fine)

    @property
    def rows(self) -> int:
        """Number of all rows."""
        return self.wing + self.middle + _rows(self.upper, self.right, self.coarse)

    def nodes(self) -> Tensor:
        """Borders of the rows from left to right, (rows + 1,), float64."""
        outer = self.rows - self.wing - self.middle
        count = torch.arange(self.rows, dtype=torch.float64)
        return torch.cat(
            [
                self.left + self.coarse * count[: self.wing],
                self.lower + self.fine * count[: self.middle],
                self.upper + self.coarse * count[:outer],
                count.new_tensor([self.right]),
            ]
        )


def _rows(start: float, end: float, stride: float) -> int:
    count = (end - start) / stride
    if abs(count - round(count)) > _TOLERANCE * max(1.0, count):
        raise ValueError(
            f"rows of width {stride:g} do not divide the table's region "
            f"[{start:g}, {end:g}); choose a stride and an extrapolation factor that "
            "give a whole number of rows, such as 0.01 and 5"
        )
    return round(count)
