"""One linear map per degree on packed rows, as one Triton kernel, float32."""

from .operators import degree_linear

__all__ = ["degree_linear"]
