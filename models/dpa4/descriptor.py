"""The DPA4 descriptor: edges and types in, one vector of scalars per atom out."""

import torch
from torch import Tensor, nn

from ..edges import EdgeList
from .block import InteractionBlock, readout_network
from .config import DescriptorConfig
from .embedding import EnvironmentSeed, FilmModulation, TypeEmbedding, geometric_rows
from .geometry import EdgeGeometry, EdgeRotation, edge_geometry
from .layout import packed_size
from .radial import RadialBasis, RadialNetwork

__all__ = ["Descriptor"]


class Descriptor(nn.Module):
    """Initial embedding, interaction blocks, read-out."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.config = config
        self.type_embedding = TypeEmbedding(config.ntypes, config.channels)
        self.radial_basis = RadialBasis(config)
        self.radial_embedding = RadialNetwork(config)
        self.env_seed_embedding = EnvironmentSeed(config) if config.use_env_seed else None
        self.film = FilmModulation(config) if config.use_env_seed else None
        self.rotation = EdgeRotation(config.lmax, config.block_mmax)
        self.blocks = nn.ModuleList(
            InteractionBlock(config) for _ in range(config.n_blocks)
        )
        self.output_ffn = readout_network(config)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights and of everything after the edge vectors."""
        return self.type_embedding.adam_type_embedding.dtype

    def forward(self, types: Tensor, edges: EdgeList) -> Tensor:
        """Types (N,) and edges -> (N, C)."""
        geometry = edge_geometry(edges, self.config, self.dtype)
        basis = self.radial_basis(geometry.length)
        radial = self.radial_embedding(basis)
        if self.config.version >= 1.1:
            radial = radial * geometry.envelope[:, None, None]
        scalars = self.type_embedding(types)
        x = self._initial_state(geometry, types, scalars, basis, radial)
        pair = edges.at_src(scalars) + edges.at_dst(scalars)
        features = radial + pair[:, None, :]
        rotation = self.rotation(geometry.unit) if self.blocks else []
        for block in self.blocks:
            x = block(x, geometry, rotation, features)
        if self.config.so3_readout == "none":
            x = x[:, :1]
        return (x + self.output_ffn(x))[:, 0]

    def _initial_state(
        self, geometry: EdgeGeometry, types, scalars, basis, radial
    ) -> Tensor:
        """Packed node state (N, D, C)."""
        if self.env_seed_embedding is None:
            rows = scalars.new_zeros(
                len(scalars), packed_size(self.config.node_lmax) - 1, scalars.shape[1]
            )
        else:
            logits = self.env_seed_embedding(geometry, types, basis)
            scalars = self.film(scalars, logits)
            rows = geometric_rows(geometry, radial)
        return torch.cat([scalars[:, None], rows], dim=1)
