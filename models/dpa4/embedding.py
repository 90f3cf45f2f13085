"""Initial node state: type embedding, its modulation by the environment, l > 0 rows."""

import torch
from torch import Tensor, nn

from .activation import Activation
from .config import DescriptorConfig
from .linear import MLPLayer, parameter
from .norm import rms_normalize
from .view import DPA4EdgeView

__all__ = ["EnvironmentSeed", "FilmModulation", "TypeEmbedding", "geometric_messages"]


class TypeEmbedding(nn.Module):
    """Learnt vector of each type; the stored last row is padding and never read."""

    def __init__(self, ntypes: int, width: int):
        super().__init__()
        self.adam_type_embedding = parameter(ntypes + 1, width)

    def forward(self, types: Tensor) -> Tensor:
        """Types (N,) -> (N, width)."""
        return self.adam_type_embedding.index_select(0, types)


class EnvironmentSeed(nn.Module):
    """Rotation-invariant fingerprint of the neighbours, (N, 2 C): scale and shift logits.

    Degree-0 and degree-1 moments of learnt radial weights are contracted with themselves.
    """

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        channels, bias = config.channels, config.mlp_bias
        n_filter = min(channels, 128)
        n_type = min(32, max(8, channels // 4))
        n_radial = self.n_radial = max(32, n_filter - 2 * n_type)
        n_hidden = min(256, max(2 * n_filter, n_radial + 2 * n_type))
        self.n_axis = min(4 if n_filter < 64 else 8, max(1, n_filter - 1))
        self.activation = Activation(config.activation)
        self.env_type_embed = TypeEmbedding(config.ntypes, n_type)
        self.rbf_proj_layer1 = MLPLayer(config.n_radial, n_radial, bias)
        self.rbf_proj_layer2 = MLPLayer(n_radial, n_radial, bias)
        self.g_layer1 = MLPLayer(n_radial + 2 * n_type, n_hidden, bias)
        self.g_layer2 = MLPLayer(n_hidden, n_filter, bias)
        self.output_proj = MLPLayer(n_filter * self.n_axis, 2 * channels)
        self.fused: nn.Module | None = None  # set by ``fused_view.fuse_view``
        self.spin_scale = parameter(1) if config.magnetic_types else None

    def project_types(self, types: Tensor) -> tuple[Tensor, Tensor]:
        """Type parts of the first hidden layer as source and as destination, (N, H) each.

        That layer acts on [radial | source type | destination type]; its type parts are
        constants of the atoms, so they are applied there and not on every edge.
        """
        embedded = self.env_type_embed(types)
        n_type = embedded.shape[1]
        _, of_src, of_dst = self.g_layer1.matrix.split([self.n_radial, n_type, n_type])
        return embedded @ of_src, embedded @ of_dst

    def weights(self, view: DPA4EdgeView, of_src: Tensor, of_dst: Tensor) -> Tensor:
        """Learnt weights of edges from their lengths and type parts (E, H), (E, B)."""
        of_length = self._of_length if self.fused is None else self.fused
        return self.g_layer2(self.activation(of_length(view) + of_src + of_dst))

    def _of_length(self, view: DPA4EdgeView) -> Tensor:
        """The part of the first hidden layer that the lengths give, (E, H)."""
        layer = self.rbf_proj_layer1(view.basis)
        radial = self.rbf_proj_layer2(self.activation(layer))
        hidden = radial @ self.g_layer1.matrix[: self.n_radial]
        return hidden if self.g_layer1.bias is None else hidden + self.g_layer1.bias

    def forward(self, moments: Tensor, spin_moments: Tensor | None) -> Tensor:
        """Moments (N, 4, B), those of the spins (N, 3, B) -> logits (N, 2 C)."""
        product = moments.mT @ moments[:, :, : self.n_axis]
        if spin_moments is not None:
            of_spin = spin_moments.mT @ spin_moments[:, :, : self.n_axis]
            product = product + self.spin_scale * of_spin
        return self.output_proj(product.flatten(1))


class FilmModulation(nn.Module):
    """``t (1 + e^s tanh(scale)) + e^u tanh(shift)`` with learnt strengths s and u."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.eps = config.eps if config.edge_norm else None
        if config.edge_norm:
            self.scale_gain = parameter(1, config.channels)
            self.shift_gain = parameter(1, config.channels)
        self.scale_strength_log = parameter(1)
        self.shift_strength_log = parameter(1)

    def forward(self, scalars: Tensor, logits: Tensor) -> Tensor:
        """Scalars (N, C), logits (N, 2 C) -> (N, C)."""
        scale, shift = logits.chunk(2, dim=1)
        if self.eps is not None:
            scale = rms_normalize(scale, self.eps) * self.scale_gain
            shift = rms_normalize(shift, self.eps) * self.shift_gain
        gain = 1 + self.scale_strength_log.exp() * scale.tanh()
        return scalars * gain + self.shift_strength_log.exp() * shift.tanh()


def geometric_messages(
    harmonics: Tensor, radial: Tensor, degree_one: Tensor | None
) -> Tensor:
    """Messages to the initial rows of degree l >= 1: harmonics times radial features.

    Args:
        harmonics: of the directions, (E, (L + 1)^2).
        radial: type-free radial features, (E, L + 1, C).
        degree_one: further messages of degree 1, (E, 3, C).

    Returns:
        (E, (L + 1)^2 - 1, C).
    """
    lmax = radial.shape[1] - 1
    parts = [
        harmonics[:, l * l : (l + 1) ** 2, None] * radial[:, l, None, :]
        for l in range(1, lmax + 1)
    ]
    if degree_one is not None:
        parts[0] = parts[0] + degree_one
    return torch.cat(parts, dim=1)
