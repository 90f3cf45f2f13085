"""The initial node state: sums over neighbours, then what each atom makes of them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .conditioning import SpinEmbedding
from .config import DescriptorConfig
from .embedding import EnvironmentSeed, FilmModulation, geometric_messages
from .geometry import inverse_root_degree
from .layout import packed_size
from .view import DPA4EdgeView

__all__ = ["InitialState"]


class InitialState(nn.Module):
    """Scalars modulated by the environment, rows of higher degree from the geometry."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.config = config
        self.n_rows = packed_size(config.node_lmax)
        self.env_seed_embedding = EnvironmentSeed(config) if config.use_env_seed else None
        self.film = FilmModulation(config) if config.use_env_seed else None
        self.spin_embedding = SpinEmbedding(config) if config.magnetic_types else None

    def at_edges(
        self, types: Tensor, spin: Tensor | None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """What edges read of their source and of their destination; spins masked."""
        if self.env_seed_embedding is None:
            return [], []
        of_src, of_dst = self.env_seed_embedding.project_types(types)
        src = [of_src]
        if spin is not None:
            src += [spin, self.spin_embedding.to_neighbours(types, spin)]
        return src, [of_dst]

    def edge_sums(
        self, view: DPA4EdgeView, src: Sequence[Tensor], dst: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Smooth degree (N, 1), moments (N, 4, B), rows (N, D - 1, C), spin (N, 3, B).

        The first alone without the environment seed, no rows without degrees above zero,
        the last with spins.
        """
        geometry, layout = view.geometry, view.layout
        envelope = view.envelope
        degree = layout.sum_at_dst(envelope.square()[:, None])
        if self.env_seed_embedding is None:
            return (degree,)
        of_dst = layout.at_dst(dst[0])
        weights = self.env_seed_embedding.weights(view, src[0], of_dst)
        strength = (envelope / geometry.length)[:, None]
        moment = torch.cat([strength, strength * geometry.unit], dim=1)  # (E, 4)
        sums = [degree, self._moments(view, moment, weights)]
        of_spin = None
        if len(src) > 1:
            of_spin = src[2] * envelope[:, None, None]
        if self.n_rows > 1:
            messages = geometric_messages(view.harmonics, view.radial, of_spin)
            sums.append(layout.sum_at_dst(view.gated(messages)))
        if len(src) > 1:
            spin_moment = envelope[:, None] * src[1]
            sums.append(self._moments(view, spin_moment, weights))
        return tuple(sums)

    def _moments(self, view: DPA4EdgeView, moment: Tensor, weights: Tensor) -> Tensor:
        """Sum of ``moment (x) weights`` over neighbours."""
        moment = view.gated(moment)
        return view.layout.sum_products_at_dst(moment[:, None, :], weights[:, None, :])

    def forward(
        self, scalars: Tensor, on_site: Tensor, degree: Tensor, *sums: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Node state from its sums.

        Args:
            scalars: type embedding of the atoms, (N, C).
            on_site: degree-1 rows of an atom's own spin, (N, 3, C), or (N, 0, C).
            degree: smooth neighbour count, (N, 1).
            *sums: the others of ``edge_sums``.

        Returns:
            Packed node state (N, D, C), one over the root of the degree (N, 1).
        """
        inv_sqrt_degree = inverse_root_degree(degree, self.config)
        if not sums:
            state = F.pad(scalars[:, None], (0, 0, 0, self.n_rows - 1))
        else:
            moments, *rest = (x * inv_sqrt_degree[..., None] for x in sums)
            rows, spin_moments = rest[:1], rest[1:]
            logits = self.env_seed_embedding(moments, *(spin_moments or [None]))
            state = torch.cat([self.film(scalars, logits)[:, None], *rows], dim=1)
        if on_site.shape[1]:
            state = state + F.pad(on_site, (0, 0, 1, self.n_rows - 4))
        return state, inv_sqrt_degree
