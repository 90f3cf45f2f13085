"""Two-body descriptor with directions: se_e2_a."""

from torch import Tensor, nn

from ..edges import EdgeList
from .config import DescriptorConfig
from .environment import Environment
from .networks import EmbeddingNet

__all__ = ["SeA", "gram"]


def gram(moments: Tensor, axis_neuron: int) -> Tensor:
    """Invariant products ``D_kl = sum_m X_mk X_ml``, l < A, (N, M, K) -> (N, K A)."""
    return (moments.transpose(1, 2) @ moments[:, :, :axis_neuron]).flatten(1)


class SeA(nn.Module):
    """``D = gram(sum_j R_j ⊗ g(R_j0) / n_slots)`` over the neighbours j of an atom.

    The embedding net g is that of the neighbour's type t (number t), or, two-sided, of
    the types of centre and neighbour (number c + t T).
    """

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.config = config
        self.environment = Environment(config)
        n_nets = config.ntypes if config.type_one_side else config.ntypes**2
        self.embeddings = nn.ModuleDict(
            {str(n): EmbeddingNet(config) for n in range(n_nets)}
        )

    @property
    def n_out(self) -> int:
        """Width of the descriptor."""
        return self.config.channels * self.config.axis_neuron

    def forward(self, types: Tensor, edges: EdgeList) -> Tensor:
        """Evaluate, (N, n_out)."""
        near = self.environment(types, edges)
        absent = self.environment.absent_rows[:, None]
        total = near.rows.new_zeros(len(types), 4, self.config.channels)
        for number, embedding in self.embeddings.items():
            centre, neighbour = self._types_of(int(number))
            block = near.block(neighbour, centre)
            moments = embedding.moments(block.fill(near.rows))
            n_absent = block.take(near.n_absent[:, neighbour])[:, None, None]
            of_absent = embedding.moments(absent)[block.take(types)]
            total = block.add_to(total, moments + n_absent * of_absent)
        return gram(total / self.config.n_slots, self.config.axis_neuron)

    def _types_of(self, number: int) -> tuple[int | None, int]:
        """Centre type (None: any) and neighbour type of an embedding net."""
        if self.config.type_one_side:
            return None, number
        return number % self.config.ntypes, number // self.config.ntypes
