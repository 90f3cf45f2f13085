"""Weights of the messages of edges, attention and choice of stream; Triton, float32."""

from .operators import edge_weights
from .tables import WeightTables

__all__ = ["WeightTables", "edge_weights"]
