"""Tabulated embedding nets: five operators and the tables that they look up."""

from .domain import Domain
from .operators import se_a, se_atten, se_r, se_t, se_t_tebd
from .table import build_table, one_sided_range, two_sided_range

__all__ = [
    "Domain",
    "build_table",
    "one_sided_range",
    "se_a",
    "se_atten",
    "se_r",
    "se_t",
    "se_t_tebd",
    "two_sided_range",
]
