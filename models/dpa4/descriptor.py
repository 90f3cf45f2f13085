"""The DPA4 descriptor: edges and types in, one vector of scalars per atom out."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..edges import EdgeList
from ..inputs import InputSpec
from .block import InteractionBlock
from .conditioning import ChargeSpinEmbedding, SpinEmbedding
from .config import DescriptorConfig
from .embedding import EnvironmentSeed, FilmModulation, TypeEmbedding, geometric_rows
from .ffn import readout_network
from .geometry import EdgeGeometry, EdgeRotation, edge_geometry
from .history import HistoryBlock, final_attention
from .layout import packed_size
from .radial import RadialBasis, RadialNetwork

__all__ = ["Descriptor"]


class Descriptor(nn.Module):
    """Initial embedding, interaction blocks, read-out."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.config = config
        blocks = [config.for_block(i) for i in range(len(config.schedule))]
        last = blocks[-1] if blocks else config
        self.type_embedding = TypeEmbedding(config.ntypes, config.channels)
        self.charge_spin_embedding = (
            ChargeSpinEmbedding(config) if config.charge_spin else None
        )
        self.spin_embedding = SpinEmbedding(config) if config.magnetic_types else None
        self.radial_basis = RadialBasis(config)
        self.radial_embedding = RadialNetwork(config)
        self.env_seed_embedding = EnvironmentSeed(config) if config.use_env_seed else None
        self.film = FilmModulation(config) if config.use_env_seed else None
        self.rotations = nn.ModuleDict(
            {
                f"{c.lmax}_{c.mmax}": EdgeRotation(c.lmax, c.mmax)
                for c in blocks
                if c.uses_frames
            }
        )
        self.with_history = config.depth_attention != "none"
        block = HistoryBlock if self.with_history else InteractionBlock
        self.blocks = nn.ModuleList(block(c) for c in blocks)
        self.final_attn_res = final_attention(config) if self.with_history else None
        self.readout_rows = packed_size(0 if config.readout == "none" else last.node_lmax)
        self.readout_pre_layers = nn.ModuleList(
            readout_network(last) for _ in range(config.readout_layers - 1)
        )
        self.output_ffn = readout_network(last)

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What the descriptor reads beside types and edges."""
        specs = []
        if self.config.charge_spin:
            has_default = self.config.default_charge_spin is not None
            specs.append(InputSpec("charge_spin", 2, required=not has_default))
        if self.config.magnetic_types:
            specs.append(InputSpec("spin", 3, per_atom=True))
        return tuple(specs)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights and of everything after the edge vectors."""
        return self.type_embedding.adam_type_embedding.dtype

    def forward(
        self, types: Tensor, edges: EdgeList, conditions: Mapping[str, Tensor]
    ) -> Tensor:
        """Types (N,), edges and further inputs by name -> (N, C)."""
        geometry = edge_geometry(edges, self.config, self.dtype)
        basis = self.radial_basis(geometry.length)
        radial = self.radial_embedding(basis)
        if self.config.version >= 1.1:
            radial = radial * geometry.envelope[:, None, None]
        spin = self._masked_spin(types, conditions)
        scalars = self._scalars(types, conditions, spin)
        x = self._initial_state(geometry, types, scalars, basis, radial, spin)
        pair = edges.at_src(scalars) + edges.at_dst(scalars)
        x = self._run_blocks(x, geometry, radial + pair[:, None, :])
        x = x[:, : self.readout_rows]
        for layer in self.readout_pre_layers:
            x = x + layer(x)
        return (x + self.output_ffn(x))[:, 0]

    def _masked_spin(self, types: Tensor, conditions) -> Tensor | None:
        if self.spin_embedding is None or "spin" not in conditions:
            return None
        return self.spin_embedding.mask(types, conditions["spin"].to(self.dtype))

    def _scalars(self, types: Tensor, conditions, spin: Tensor | None) -> Tensor:
        """Scalar node embedding, (N, C)."""
        scalars = self.type_embedding(types)
        if self.charge_spin_embedding is not None:
            scalars = scalars + self.charge_spin_embedding(conditions)
        if spin is not None:
            scalars = scalars + self.spin_embedding.scalars(types, spin)
        return scalars

    def _initial_state(
        self,
        geometry: EdgeGeometry,
        types: Tensor,
        scalars: Tensor,
        basis: Tensor,
        radial: Tensor,
        spin: Tensor | None,
    ) -> Tensor:
        """Packed node state (N, D, C)."""
        n_rows = packed_size(self.config.node_lmax)
        if self.env_seed_embedding is None:
            state = F.pad(scalars[:, None], (0, 0, 0, n_rows - 1))
        else:
            logits = self.env_seed_embedding(geometry, types, basis, spin)
            state = self.film(scalars, logits)[:, None]
            if n_rows > 1:
                of_spin = None
                if spin is not None:
                    of_spin = self.spin_embedding.from_neighbours(types, spin, geometry)
                rows = geometric_rows(geometry, radial, of_spin)
                state = torch.cat([state, rows], dim=1)
        if spin is not None:
            on_site = self.spin_embedding.on_site(types, spin)
            state = state + F.pad(on_site, (0, 0, 1, n_rows - 4))
        return state

    def _run_blocks(self, x: Tensor, geometry: EdgeGeometry, features: Tensor) -> Tensor:
        """Node state after the last block; each block sees a prefix of the rows."""
        rotations = {k: rotate(geometry.unit) for k, rotate in self.rotations.items()}
        history = [x]
        for block, (lmax, mmax) in zip(self.blocks, self.config.schedule, strict=True):
            inputs = (geometry, rotations.get(f"{lmax}_{mmax}"), features[:, : lmax + 1])
            x = x[:, : block.node_rows]
            if self.with_history:
                seen = [h[:, : block.node_rows] for h in history]
                added, x = block(seen, x, *inputs)
                history += added
            else:
                x = block(x, *inputs)
        if self.with_history and self.blocks:
            seen = [h[:, : x.shape[1]] for h in history]
            x = self.final_attn_res.mean(seen, x)
        return x
