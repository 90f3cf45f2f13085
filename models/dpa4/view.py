"""Some edges as the DPA4 functions see them: geometry, radial features, frames."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from .geometry import EdgeGeometry, edge_envelope, edge_geometry
from .harmonics import spherical_harmonics

if TYPE_CHECKING:
    from .descriptor import Descriptor

__all__ = ["DPA4EdgeView"]

T = TypeVar("T")


class DPA4EdgeView:
    """Quantities of edges that depend on their vectors alone, each evaluated once.

    Args:
        layout: sums over the edges of each destination: an ``EdgeList`` or part of one.
        vec: edge vectors in Å, (E, 3).
        descriptor: the model that says how.
    """

    def __init__(self, layout, vec: Tensor, descriptor: Descriptor):
        self.layout, self.vec = layout, vec
        self.source_gate: Tensor | None = None
        self._descriptor = descriptor
        self._evaluated: dict[str, object] = {}

    @cached_property
    def geometry(self) -> EdgeGeometry:
        """Lengths and directions."""
        return edge_geometry(self.vec, self._descriptor.config, self._descriptor.dtype)

    @cached_property
    def envelope(self) -> Tensor:
        """Smooth cutoff weight, (E,)."""
        return edge_envelope(self.geometry.length, self._descriptor.config)

    @cached_property
    def harmonics(self) -> Tensor:
        """Spherical harmonics of the directions, (E, D) for all degrees of the nodes."""
        return spherical_harmonics(self.geometry.unit, self._descriptor.config.node_lmax)

    @cached_property
    def basis(self) -> Tensor:
        """Radial basis with its envelope, (E, n_radial)."""
        return self._descriptor.radial_basis(self.geometry.length)

    @cached_property
    def radial(self) -> Tensor:
        """Type-free radial features, (E, L + 1, C)."""
        radial = self._descriptor.radial_embedding(self.basis)
        if self._descriptor.config.version >= 1.1:
            radial = radial * self.envelope[:, None, None]
        return radial

    def rotation(self, lmax: int, mmax: int) -> list[Tensor]:
        """Rotation into the edge frame, per order (E, n or 2 n, D)."""
        key = f"{lmax}_{mmax}"
        rotate = self._descriptor.rotations[key]
        return self.once(f"rotation {key}", lambda: rotate(self.geometry.unit))

    def once(self, name: str, evaluate: Callable[[], T]) -> T:
        """What ``evaluate`` gives, called for a name only once."""
        if name not in self._evaluated:
            self._evaluated[name] = evaluate()
        return self._evaluated[name]

    def gated(self, values: Tensor) -> Tensor:
        """Times the gate of the source where there is one, (E, ...) -> (E, ...)."""
        if self.source_gate is None:
            return values
        return values * self.source_gate.reshape(-1, *[1] * (values.ndim - 1))
