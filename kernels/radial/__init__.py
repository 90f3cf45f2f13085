"""Radial features of edges, from their vectors, in one Triton kernel."""

from .operators import RadialTables, radial_features

__all__ = ["RadialTables", "radial_features"]
