"""Three-body descriptor with type embedding: se_e3_tebd."""

import torch
from torch import Tensor, nn

from ..edges import EdgeList
from .config import DescriptorConfig
from .environment import Environment
from .networks import EmbeddingNet, JointEmbeddingNet
from .type_embedding import TypeEmbedding, TypeGate

__all__ = ["SeTTebd", "SeTTebdConcat"]


class SeTTebd(nn.Module):
    """``D = sum_jl c_jl g(c_jl) (1 + gate_jl) / n_slots^2`` with ``c_jl = R_j · R_l``.

    j and l run over all neighbours; R is the directional part of the rows. The gate
    depends on the types of both and, if smooth, fades with both distances. The vector of
    the atom's own type may follow the descriptor. Absent and excluded neighbours
    contribute nothing.
    """

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.config = config
        self.environment = Environment(config)
        self.type_embedding = TypeEmbedding(config)
        self._add_nets(config)

    def _add_nets(self, config: DescriptorConfig) -> None:
        self.embeddings = nn.ModuleDict({"0": EmbeddingNet(config)})
        self.gate = TypeGate(config)

    @property
    def n_out(self) -> int:
        """Width of the descriptor."""
        c = self.config
        return c.channels + (c.tebd_dim if c.concat_tebd else 0)

    def forward(self, types: Tensor, edges: EdgeList) -> Tensor:
        """Evaluate, (N, n_out)."""
        near = self.environment(types, edges)
        type_vectors, slots = self.type_embedding(), near.all()
        directions = slots.fill(near.rows[:, 1:])
        products = directions @ directions.transpose(1, 2)
        kinds, weight = slots.fill(near.source_types), slots.fill(near.weight)
        values = self._values(products, kinds, weight, type_vectors)
        total = torch.einsum("njl,njlk->nk", products, values) / self.config.n_slots**2
        if self.config.concat_tebd:
            total = torch.cat([total, type_vectors[types]], dim=1)
        return total

    def _values(
        self, products: Tensor, kinds: Tensor, weight: Tensor, type_vectors: Tensor
    ) -> Tensor:
        """Embedding of each pair of neighbours.

        Args:
            products: (N, j, l).
            kinds: types of the neighbours, (N, j).
            weight: their switch, (N, j).
            type_vectors: (T, tebd_dim).

        Returns:
            (N, j, l, K).
        """
        gate = self.gate(type_vectors)[kinds[:, :, None], kinds[:, None, :]]
        if self.config.smooth:
            gate = gate * (weight[:, :, None] * weight[:, None, :])[..., None]
        return self.embeddings["0"](products) * (1 + gate)


class SeTTebdConcat(SeTTebd):
    """``D = sum_jl c_jl g(c_jl, types) / n_slots^2``: the net reads the type vectors."""

    def _add_nets(self, config: DescriptorConfig) -> None:
        self.embeddings = nn.ModuleDict({"0": JointEmbeddingNet(config, n_vectors=2)})

    def _values(
        self, products: Tensor, kinds: Tensor, weight: Tensor, type_vectors: Tensor
    ) -> Tensor:
        vectors = type_vectors[kinds]
        pair = torch.broadcast_tensors(vectors[:, :, None], vectors[:, None, :])
        return self.embeddings["0"](products, *pair)
