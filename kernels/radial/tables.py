"""What the kernels of this folder know of a radial network."""

from dataclasses import dataclass

from torch import Tensor

__all__ = ["RadialTables"]


@dataclass(frozen=True)
class RadialTables:
    """A radial network with one hidden layer, and what is made of its values.

    Attributes:
        frequencies: of the Bessel functions in 1/Å, (B,).
        hidden: from the basis to the hidden layer, (B, W).
        hidden_bias: (W,) or None.
        norm_scale: of the root-mean-square norm of the hidden layer, (W,), or None for
            no norm.
        out: from the hidden layer to the features, (W, n), n a multiple of 16.
        out_bias: (n,) or None.
        rcut: cutoffs in Å of the basis and of the envelope.
        exponents: number of terms in the envelopes of the basis and of the edges.
        eps: in Å; the length of an edge is ``sqrt(r^2 + eps^2)``.
        norm_eps: floor of the norm.
        vanishing: whether the features are multiplied by the envelope.
    """

    frequencies: Tensor
    hidden: Tensor
    hidden_bias: Tensor | None
    norm_scale: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    rcut: tuple[float, float]
    exponents: tuple[int, int]
    eps: float
    norm_eps: float
    vanishing: bool

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors, in order."""
        hidden = (self.hidden, self.hidden_bias, self.norm_scale)
        return (self.frequencies, *hidden, self.out, self.out_bias)

    @property
    def numbers(self) -> tuple[list[float], list[int], bool]:
        """Cutoffs, eps squared and floor, the numbers of terms, and ``vanishing``."""
        return [*self.rcut, self.eps**2, self.norm_eps], [*self.exponents], self.vanishing
