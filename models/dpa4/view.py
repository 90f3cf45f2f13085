"""Some edges as the DPA4 functions see them: geometry, radial features, frames."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor

from .geometry import EdgeGeometry, edge_geometry

if TYPE_CHECKING:
    from .descriptor import Descriptor

__all__ = ["DPA4EdgeView"]


class DPA4EdgeView:
    """Quantities of edges that depend on their vectors alone, each evaluated once.

    Args:
        layout: sums over the edges of each destination: an ``EdgeList`` or part of one.
        vec: edge vectors in Å, (E, 3).
        descriptor: the model that says how.
    """

    def __init__(self, layout, vec: Tensor, descriptor: Descriptor):
        self.layout = layout
        self.source_gate: Tensor | None = None
        self._descriptor = descriptor
        self._rotations: dict[str, list[Tensor]] = {}
        self.geometry: EdgeGeometry = edge_geometry(
            vec, descriptor.config, descriptor.dtype
        )

    @cached_property
    def basis(self) -> Tensor:
        """Radial basis with its envelope, (E, n_radial)."""
        return self._descriptor.radial_basis(self.geometry.length)

    @cached_property
    def radial(self) -> Tensor:
        """Type-free radial features, (E, L + 1, C)."""
        radial = self._descriptor.radial_embedding(self.basis)
        if self._descriptor.config.version >= 1.1:
            radial = radial * self.geometry.envelope[:, None, None]
        return radial

    def rotation(self, lmax: int, mmax: int) -> list[Tensor]:
        """Rotation into the edge frame, per order (E, n or 2 n, D)."""
        key = f"{lmax}_{mmax}"
        if key not in self._rotations:
            self._rotations[key] = self._descriptor.rotations[key](self.geometry.unit)
        return self._rotations[key]

    def gated(self, values: Tensor) -> Tensor:
        """Times the gate of the source where there is one, (E, ...) -> (E, ...)."""
        if self.source_gate is None:
            return values
        return values * self.source_gate.reshape(-1, *[1] * (values.ndim - 1))
