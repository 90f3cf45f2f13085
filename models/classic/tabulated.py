"""Embedding nets replaced by tables."""

from torch import Tensor, nn

from ...kernels import tabulate
from .networks import Embedding

__all__ = ["StoredGate", "TabulatedEmbedding"]


class TabulatedEmbedding(Embedding):
    """An embedding as a piecewise polynomial of degree five, its sums as fused operators.

    Args:
        table: coefficients, (rows, 6 K); see ``kernels.tabulate``.
        domain: where its rows lie.
        kernels: which operators to use: "auto", "torch" or "triton".
    """

    def __init__(self, table: Tensor, domain: tabulate.Domain, kernels: str = "auto"):
        super().__init__()
        self.table = nn.Buffer(table)
        self.domain = domain
        self.kernels = kernels

    def forward(self, x: Tensor) -> Tensor:
        if self.domain.two_sided:
            return tabulate.se_t_tebd(*self._stored, _column(x), x, **self._options)
        values = tabulate.se_r(*self._stored, x.reshape(1, -1), **self._options)
        return values.reshape(*x.shape, values.shape[-1])

    def moments(self, rows: Tensor) -> Tensor:
        """See ``Embedding``."""
        return tabulate.se_a(*self._stored, _column(rows[..., 0]), rows, **self._options)

    def gated_moments(self, rows: Tensor, gate: Tensor) -> Tensor:
        """See ``Embedding``.

        A neighbour's direction is never zero here, and all places without one are alike,
        so these may be folded.
        """
        return tabulate.se_atten(
            *self._stored,
            _column(rows[..., 0]),
            rows,
            gate.flatten(0, 1),
            is_sorted=True,
            **self._options,
        )

    def pair_sum(self, products: Tensor) -> Tensor:
        """See ``Embedding``."""
        return tabulate.se_t(*self._stored, _column(products), products, **self._options)

    @property
    def _stored(self) -> tuple[Tensor, Tensor]:
        return self.table, self.domain.info(self.table.dtype)

    @property
    def _options(self) -> dict:
        return {"K": self.table.shape[1] // 6, "kernels": self.kernels}


class StoredGate(nn.Module):
    """A type gate whose values have been worked out."""

    def __init__(self, gates: Tensor):
        super().__init__()
        self.gates = nn.Buffer(gates)

    def forward(self, type_vectors: Tensor) -> Tensor:
        return self.gates


def _column(x: Tensor) -> Tensor:
    return x.reshape(-1, 1)
