"""Three-body descriptor with a net per pair of neighbour types: se_e3."""

from torch import Tensor, nn

from ..edges import EdgeList
from .config import DescriptorConfig
from .environment import Environment
from .networks import EmbeddingNet

__all__ = ["SeT"]


class SeT(nn.Module):
    """``D = sum_ab sum_jl c_jl g_ab(c_jl) / (sel_a sel_b)`` with ``c_jl = R_j · R_l``.

    The sum runs over unordered pairs of neighbour types a <= b, all neighbours j of type
    a and l of type b; R is the directional part of the rows. Net a + b T belongs to a, b.
    Absent and excluded neighbours contribute nothing.
    """

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.config = config
        self.environment = Environment(config)
        n = config.ntypes
        numbers = [a + b * n for b in range(n) for a in range(b + 1)]
        self.embeddings = nn.ModuleDict({str(i): EmbeddingNet(config) for i in numbers})

    @property
    def n_out(self) -> int:
        """Width of the descriptor."""
        return self.config.channels

    def forward(self, types: Tensor, edges: EdgeList) -> Tensor:
        """Evaluate, (N, n_out)."""
        near = self.environment(types, edges)
        n, sel = self.config.ntypes, self.config.sel
        directions = [near.block(t).fill(near.rows[:, 1:]) for t in range(n)]
        total = near.rows.new_zeros(len(types), self.config.channels)
        for number, embedding in self.embeddings.items():
            b, a = divmod(int(number), n)
            if sel[a] and sel[b]:
                products = directions[a] @ directions[b].transpose(1, 2)
                total = total + embedding.pair_sum(products) / (sel[a] * sel[b])
        return total
