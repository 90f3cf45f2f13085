"""Root-mean-square norms of atoms as one Triton kernel each way, float32."""

from .operators import balanced_norm, stream_norm

__all__ = ["balanced_norm", "stream_norm"]
