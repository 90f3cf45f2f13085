"""Two-body descriptor with type embedding: DPA-1 (se_atten) without attention layers."""

import torch
from torch import Tensor, nn

from ..edges import EdgeList
from .config import DescriptorConfig
from .environment import Environment, Neighbours
from .networks import EmbeddingNet, JointEmbeddingNet
from .se_a import gram
from .type_embedding import TypeEmbedding, TypeGate

__all__ = ["DPA1", "DPA1Concat"]


class DPA1(nn.Module):
    """``D = gram(sum_j R_j ⊗ g(R_j0) (1 + gate_j) / n_slots)`` over the neighbours j.

    The gate depends on the types of neighbour and centre and, if smooth, fades with the
    distance. The vector of the atom's own type may follow the descriptor.
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
        return c.channels * c.axis_neuron + (c.tebd_dim if c.concat_tebd else 0)

    def forward(self, types: Tensor, edges: EdgeList) -> Tensor:
        """Evaluate, (N, n_out)."""
        near = self.environment(types, edges)
        type_vectors = self.type_embedding()
        moments = self._moments(near, type_vectors) / self.config.n_slots
        result = gram(moments, self.config.axis_neuron)
        if self.config.concat_tebd:
            result = torch.cat([result, type_vectors[types]], dim=1)
        return result

    def _moments(self, near: Neighbours, type_vectors: Tensor) -> Tensor:
        """Sum over present and absent neighbours, (N, 4, K)."""
        embedding, slots = self.embeddings["0"], near.all()
        gate = slots.fill(self._gates(near, type_vectors))
        moments = embedding.gated_moments(slots.fill(near.rows), gate)
        of_absent = embedding.moments(self.environment.absent_rows[:, None])
        return moments + near.n_absent[:, :, None] * of_absent[near.types]

    def _gates(self, near: Neighbours, type_vectors: Tensor) -> Tensor:
        """Gate of each edge, (E, K)."""
        table = self.gate(type_vectors)
        second = 0 if self.config.type_one_side else near.centre_types
        gates = table[near.source_types, second]
        return gates * near.weight[:, None] if self.config.smooth else gates


class DPA1Concat(DPA1):
    """``D = gram(sum_j R_j ⊗ g(R_j0, types) / n_slots)``: the net reads the type vectors.

    Requires statistics with a zero mean, so that absent neighbours contribute nothing.
    """

    def _add_nets(self, config: DescriptorConfig) -> None:
        n_vectors = 1 if config.type_one_side else 2
        self.embeddings = nn.ModuleDict({"0": JointEmbeddingNet(config, n_vectors)})

    def _moments(self, near: Neighbours, type_vectors: Tensor) -> Tensor:
        inputs = [type_vectors[near.source_types]]
        if not self.config.type_one_side:
            inputs.append(type_vectors[near.centre_types])
        slots = near.all()
        values = slots.fill(self.embeddings["0"](near.rows[:, 0], *inputs))
        return slots.fill(near.rows).transpose(1, 2) @ values
