"""Products of 3 x 3 matrices in place of rotations, for degrees up to two.

Packed coefficients of degree 0, 1 and 2 are the identity, antisymmetric and symmetric
traceless parts of a matrix; an orthonormal basis B_p connects them.
"""

from collections.abc import Callable
from math import sqrt

import numpy as np
import torch
from torch import Tensor, nn

from .config import DescriptorConfig
from .gates import PackedGate
from .layout import packed_size
from .linear import FocusSO3Linear, constant
from .messages import GlobalPath, by_focus

__all__ = ["EdgeCartesianPath", "NodeCartesian"]


def cartesian_basis(lmax: int) -> np.ndarray:
    """Orthonormal matrices of the packed rows up to degree two, (D, 3, 3)."""
    a, c = 1 / sqrt(2), 1 / sqrt(6)
    rows = [np.eye(3) / sqrt(3)]
    for i, j in ((2, 0), (0, 1), (2, 1)):  # E31 - E13, E12 - E21, E32 - E23
        rows.append(_antisymmetric(i, j) * a)
    rows.append(-a * _symmetric(0, 1))
    rows.append(a * _symmetric(1, 2))
    rows.append(c * np.diag([-1.0, -1.0, 2.0]))
    rows.append(-a * _symmetric(0, 2))
    rows.append(a * np.diag([1.0, -1.0, 0.0]))
    return np.array(rows)[: packed_size(lmax)]


def _antisymmetric(i: int, j: int) -> np.ndarray:
    matrix = np.zeros((3, 3))
    matrix[i, j], matrix[j, i] = 1, -1
    return matrix


def _symmetric(i: int, j: int) -> np.ndarray:
    matrix = np.zeros((3, 3))
    matrix[i, j] = matrix[j, i] = 1
    return matrix


class CartesianStack(nn.Module):
    """Residual layers ``y + act(product(linear(y)))``; the last has no activation."""

    def __init__(self, config: DescriptorConfig, n_layers: int):
        super().__init__()
        width, self.n_focus = config.focus_channels, config.n_focus
        self.linears = nn.ModuleList(
            FocusSO3Linear(config.lmax, self.n_focus, width, width, config.mlp_bias)
            for _ in range(n_layers)
        )
        self.activations = nn.ModuleList(
            PackedGate(
                config.lmax, self.n_focus, width, config.so2_activation, config.mlp_bias
            )
            for _ in range(max(n_layers - 1, 0))
        )

    def forward(self, y: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        """Rows (B, D, H); ``product`` maps such rows to such rows."""
        for i, linear in enumerate(self.linears):
            update = product(linear(y))
            if i < len(self.activations):
                update = self.activations[i](by_focus(update, self.n_focus))
                update = update.movedim(0, 2).flatten(2)
            y = y + update
        return y


class EdgeCartesianPath(GlobalPath):
    """Messages as products of the source's matrix with one made from the edge.

    The edge's matrix is, per channel,
    ``r0 I / sqrt(3) + r1 [n]x / sqrt(2) + r2 (n n - I/3) / sqrt(2/3)``, r the radial
    features and n the direction; no rotation is needed.
    """

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.n_focus, self.n_layers = config.n_focus, config.mixing_layers
        basis = cartesian_basis(config.lmax)
        # K[p, d] = <B_p, B_d G> for an edge matrix G, as a map from G's nine entries.
        self.product_map = constant(np.einsum("pac,dab->pdbc", basis, basis))
        self.cross = constant(_cross_tensor())
        self.stack = CartesianStack(config, config.mixing_layers)

    def forward(self, view, rotation, radial, source, destination):
        """As ``FramePath.forward``, with all packed rows in one group."""
        product = self._product(view.geometry.unit, radial)
        message = self.stack(source, product) if self.n_layers else product(source)
        scalars = by_focus(source[:, 0] * radial[:, 0], self.n_focus)
        return [by_focus(message, self.n_focus)], scalars

    def _product(self, unit: Tensor, radial: Tensor) -> Callable[[Tensor], Tensor]:
        eye = torch.eye(3, dtype=unit.dtype, device=unit.device)
        outer = unit[:, :, None] * unit[:, None, :]
        parts = [eye.expand_as(outer) / sqrt(3)]
        parts.append(torch.einsum("abk,ek->eab", self.cross, unit) / sqrt(2))
        if radial.shape[1] > 2:
            parts.append((outer - eye / 3) / sqrt(2 / 3))
        maps = [torch.einsum("pdbc,ebc->epd", self.product_map, g) for g in parts]

        def product(y: Tensor) -> Tensor:
            return sum((k @ y) * radial[:, l, None, :] for l, k in enumerate(maps))

        return product


def _cross_tensor() -> np.ndarray:
    """``[n]x = cross . n`` with ``[n]x v = n x v``, (3, 3, 3)."""
    cross = np.zeros((3, 3, 3))
    for a, b, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        cross[b, a, k], cross[a, b, k] = 1, -1
    return cross


class NodeCartesian(nn.Module):
    """Products of the aggregated message with the node itself, as 3 x 3 matrices."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        mode, n_layers = config.node_cartesian
        self.parity = mode == "parity"
        self.basis = constant(cartesian_basis(config.lmax))
        self.stack = CartesianStack(config, n_layers)

    def forward(self, message: Tensor, node: Tensor) -> Tensor:
        """Both (N, D, H) -> (N, D, H)."""
        matrix = self._lift(node)

        def product(y: Tensor) -> Tensor:
            lifted = self._lift(y)
            both = lifted @ matrix
            if self.parity:
                both = both + matrix @ lifted
            return torch.einsum("pab,ncab->npc", self.basis, both)

        return self.stack(message, product)

    def _lift(self, x: Tensor) -> Tensor:
        """(N, D, H) -> matrices (N, H, 3, 3)."""
        return torch.einsum("pab,npc->ncab", self.basis, x)
