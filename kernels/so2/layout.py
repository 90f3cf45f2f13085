"""Sizes of the edge features that the kernels of this folder work on."""

from dataclasses import dataclass

__all__ = ["KernelOptions", "Layout"]


@dataclass(frozen=True)
class Layout:
    """Rows of orders |m| <= 1 in the frame of an edge, (E, R, H) in memory.

    The rows are (l, 0) for l = 0..L, then (l, -1) and (l, +1) for l = 1..L. The H
    channels of a row are F streams of C each.

    Attributes:
        lmax: highest degree, L.
        n_focus: streams, F.
        channels: channels of a stream, C.
    """

    lmax: int
    n_focus: int
    channels: int

    @property
    def n_rows(self) -> int:
        """Rows in the frame of an edge, R."""
        return 3 * self.lmax + 1

    @property
    def n_packed(self) -> int:
        """Rows in the global frame, D."""
        return (self.lmax + 1) ** 2

    @property
    def width(self) -> int:
        """Channels of all streams, H."""
        return self.n_focus * self.channels

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of a stream in order 0 and in orders -1 and +1 together."""
        return (self.lmax + 1) * self.channels, 2 * self.lmax * self.channels


@dataclass(frozen=True)
class KernelOptions:
    """How the kernels run.

    Attributes:
        precision: of the products in the stack, see ``products``.
        cohort_edges: the backward of the stack finishes all layers for so many edges
            before the next; 0 does all edges at once. The result has the same bits.
    """

    precision: str = "bf16x6"
    cohort_edges: int = 0
