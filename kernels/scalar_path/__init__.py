"""What every grid network does with its product: one Triton kernel each way, float32."""

from .operators import scalar_path

__all__ = ["scalar_path"]
