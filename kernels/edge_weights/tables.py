"""What the kernels of this folder know of an attention and of a choice of streams."""

from dataclasses import dataclass

from torch import Tensor

__all__ = ["FLOOR", "MAX_EXPONENT", "WeightTables"]

FLOOR = 0.02
"""Share of the streams that is spread evenly."""

MAX_EXPONENT = 80.0
"""Larger exponents, of which e^80 is no float32 any more when squared, are cut."""


@dataclass(frozen=True)
class WeightTables:
    """Attention with K weights per edge, and the competition of F streams.

    Attributes:
        null: mass of attending to nothing, positive, (K,).
        competition: from the normed scalars of each stream to its logit, (F, C), the
            scale of the norm included; None where the streams do not compete.
        competition_bias: (F,) or None.
        norm_eps: floor of the root-mean-square norm of the scalars; None for no norm.
    """

    null: Tensor
    competition: Tensor | None = None
    competition_bias: Tensor | None = None
    norm_eps: float | None = None
