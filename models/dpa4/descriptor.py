"""The DPA4 descriptor: edges and types in, one vector of scalars per atom out."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from ..edges import EdgeList
from ..execution import Executor, NativeExecutor
from ..inputs import InputSpec
from .block import InteractionBlock
from .bridging import freeze_gate
from .conditioning import ChargeSpinEmbedding
from .config import DescriptorConfig
from .embedding import TypeEmbedding
from .ffn import readout_network
from .geometry import EdgeRotation, edge_geometry
from .history import HistoryBlock, final_attention
from .initial import InitialState
from .layout import packed_size
from .radial import RadialBasis, RadialNetwork
from .view import DPA4EdgeView

__all__ = ["Descriptor", "MakeExecutor"]

MakeExecutor = Callable[[EdgeList, Callable[..., DPA4EdgeView]], Executor]


class Descriptor(nn.Module):
    """Initial embedding, interaction blocks, read-out."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.config = config
        blocks = [config.for_block(i) for i in range(len(config.schedule))]
        last = blocks[-1] if blocks else config
        self.view_kernels: nn.Module | None = None  # set by ``fused_view.fuse_view``
        self.type_embedding = TypeEmbedding(config.ntypes, config.channels)
        self.charge_spin_embedding = (
            ChargeSpinEmbedding(config) if config.charge_spin else None
        )
        self.radial_basis = RadialBasis(config)
        self.radial_embedding = RadialNetwork(config)
        self.initial = InitialState(config)
        framed = {(c.lmax, c.mmax) for c in blocks if c.uses_frames}
        self.rotations = nn.ModuleDict(
            {f"{lmax}_{mmax}": EdgeRotation(lmax, mmax) for lmax, mmax in sorted(framed)}
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
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.type_embedding.adam_type_embedding.device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights and of everything after the edge vectors."""
        return self.type_embedding.adam_type_embedding.dtype

    def forward(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor],
        executor: MakeExecutor = NativeExecutor,
    ) -> Tensor:
        """Types (N,), edges and further inputs by name -> (N, C).

        ``executor`` says how edges and atoms are gone over.
        """
        run = executor(edges, self.edge_view)
        if self.config.bridging is not None:
            length = edge_geometry(edges.vec, self.config, self.dtype).length
            run.source_gate = freeze_gate(edges, length, *self.config.bridging)
        spin = self._masked_spin(types, conditions)
        scalars = self._scalars(types, conditions, spin)
        x, inv_sqrt_degree = self._initial_state(run, types, scalars, spin)
        x = self._run_blocks(x, run, scalars, inv_sqrt_degree)
        return run.over_nodes(self._read_out, x)[0]

    def edge_view(self, layout, vec: Tensor) -> DPA4EdgeView:
        """Edges with vectors (E, 3) as the functions of this model see them."""
        if self.view_kernels is not None:
            return self.view_kernels.view(layout, vec, self)
        return DPA4EdgeView(layout, vec, self)

    def _masked_spin(self, types: Tensor, conditions) -> Tensor | None:
        if self.initial.spin_embedding is None or "spin" not in conditions:
            return None
        return self.initial.spin_embedding.mask(types, conditions["spin"].to(self.dtype))

    def _scalars(self, types: Tensor, conditions, spin: Tensor | None) -> Tensor:
        """Scalar node embedding, (N, C)."""
        scalars = self.type_embedding(types)
        if self.charge_spin_embedding is not None:
            scalars = scalars + self.charge_spin_embedding(conditions)
        if spin is not None:
            scalars = scalars + self.initial.spin_embedding.scalars(types, spin)
        return scalars

    def _initial_state(
        self, run: Executor, types: Tensor, scalars: Tensor, spin: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Packed node state (N, D, C), one over the root of the degree (N, 1)."""
        src, dst = self.initial.at_edges(types, spin)
        sums = run.over_edges(self.initial.edge_sums, src, dst)
        if spin is None:
            on_site = scalars.new_zeros(len(types), 0, scalars.shape[1])
        else:
            on_site = self.initial.spin_embedding.on_site(types, spin)
        return run.over_nodes(self.initial, scalars, on_site, *sums)

    def _run_blocks(
        self, x: Tensor, run: Executor, scalars: Tensor, inv_sqrt_degree: Tensor
    ) -> Tensor:
        """Node state after the last block; each block sees a prefix of the rows."""
        history = [x]
        for block in self.blocks:
            x = x[:, : block.node_rows]
            if self.with_history:
                seen = [h[:, : block.node_rows] for h in history]
                added, x = block(seen, x, run, scalars, inv_sqrt_degree)
                history += added
            else:
                x = block(x, run, scalars, inv_sqrt_degree)
        if self.with_history and self.blocks:
            seen = [h[:, : x.shape[1]] for h in history]
            x = self.final_attn_res.mean(seen, x)
        return x

    def _read_out(self, x: Tensor) -> tuple[Tensor]:
        """Node state (N, D, C) -> (N, C)."""
        x = x[:, : self.readout_rows]
        for layer in self.readout_pre_layers:
            x = x + layer(x)
        return ((x + self.output_ffn(x))[:, 0],)
