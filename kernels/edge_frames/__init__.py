"""Rotations into the frames of edges, from their vectors, in one Triton kernel."""

from .operators import FrameTables, edge_frames

__all__ = ["FrameTables", "edge_frames"]
