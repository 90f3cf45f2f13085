"""Two-body descriptor without directions: se_e2_r."""

from torch import Tensor, nn

from ..edges import EdgeList
from .config import DescriptorConfig
from .environment import Environment
from .networks import EmbeddingNet

__all__ = ["SeR"]

_SCALE = 0.2  # fixed in the format


class SeR(nn.Module):
    """``D = 0.2 sum_j g_t(R_j) / n_slots`` over the neighbours j, of type t, of an atom.

    Absent and excluded neighbours contribute a constant each.
    """

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.config = config
        self.environment = Environment(config)
        self.embeddings = nn.ModuleDict(
            {str(t): EmbeddingNet(config) for t in range(config.ntypes)}
        )

    @property
    def n_out(self) -> int:
        """Width of the descriptor."""
        return self.config.channels

    def forward(self, types: Tensor, edges: EdgeList) -> Tensor:
        """Evaluate, (N, n_out)."""
        near = self.environment(types, edges)
        absent = self.environment.absent_rows[:, 0]
        values = near.rows.new_zeros(near.edges.n_edges, self.config.channels)
        constant = near.rows.new_zeros(len(types), self.config.channels)
        for t, embedding in enumerate(self.embeddings.values()):
            index = (near.source_types == t).nonzero()[:, 0]
            of_type = embedding(near.rows[:, 0].index_select(0, index))
            values = values.index_copy(0, index, of_type)
            of_absent, of_excluded = embedding(absent)[types], embedding(absent[:1] * 0)
            constant = constant + near.n_absent[:, t, None] * of_absent
            constant = constant + near.n_excluded[:, t, None] * of_excluded
        total = near.edges.sum_at_dst(values) + constant
        return total * (_SCALE / self.config.n_slots)
