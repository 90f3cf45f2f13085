"""Weights of the messages on the kernels of ``kernels/edge_weights``."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...kernels.edge_weights import WeightTables, edge_weights
from ..cohorts import TILE
from .attention import FocusCompetition, safe_sqrt
from .convolution import SO2Convolution
from .view import DPA4EdgeView

__all__ = ["FusedWeights"]


class FusedWeights(nn.Module):
    """Weight of each edge's message per stream and head, zero where there is no edge.

    Args:
        conv: the convolution whose attention and competition these are.
        first_bias: the column of the features that is the first bias of the attention.
    """

    def __init__(self, conv: SO2Convolution, first_bias: int):
        super().__init__()
        self.n_focus, self.first_bias = conv.n_focus, first_bias
        self._conv = (conv,)  # in a tuple, so that it is no child of its child
        if conv.attention is not None:
            null = conv.attention.null.detach().contiguous()
            self.register_buffer("null", null, persistent=False)
        if conv.competition is not None:
            table = _competition_table(conv.competition)
            self.register_buffer("competition", table, persistent=False)

    def forward(
        self,
        view: DPA4EdgeView,
        features: Tensor,
        envelope: Tensor,
        scalars: Tensor,
        src: Sequence[Tensor],
        dst: Sequence[Tensor],
    ) -> Tensor:
        """Weights, (E, K).

        Args:
            view: the edges.
            features: with the biases of the attention among them, (E, n).
            envelope: (E,).
            scalars: first rows in the frames of the edges, before mixing, (E, H).
            src: rows of the source of each edge, the key as the last.
            dst: rows of the destinations, the query as the last.
        """
        if self._conv[0].attention is None:
            return self._without_attention(view, envelope, scalars)
        strength, layout = envelope, view.layout
        if view.source_gate is not None:
            strength = strength * safe_sqrt(view.source_gate)
        tables = self.tables
        bias = features[:, self.first_bias :][:, : len(tables.null)]
        return edge_weights(
            bias,
            dst[1],
            src[2],
            strength,
            None if tables.competition is None else scalars,
            layout.tile_row,
            layout.tile_ptr,
            tables,
            TILE,
        )

    @property
    def tables(self) -> WeightTables:
        """What the kernels know of attention and competition."""
        competition = self._conv[0].competition
        if competition is None:
            return WeightTables(self.null)
        norm = competition.focus_compete_norm
        return WeightTables(
            self.null,
            self.competition,
            competition.focus_compete_bias,
            None if isinstance(norm, nn.Identity) else norm.eps,
        )

    def _without_attention(
        self, view: DPA4EdgeView, envelope: Tensor, scalars: Tensor
    ) -> Tensor:
        weight = view.gated(envelope)[:, None].expand(-1, self.n_focus)
        competition = self._conv[0].competition
        if competition is None:
            return weight
        streams = scalars.unflatten(1, (self.n_focus, -1)).movedim(1, 0)
        return weight * competition(streams).T


def _competition_table(competition: FocusCompetition) -> Tensor:
    """From the normed scalars of each stream to its logit, (F, C)."""
    table = competition.adamw_focus_compete_w.detach().T
    norm = competition.focus_compete_norm
    if not isinstance(norm, nn.Identity):
        table = table * norm.adam_scale.detach()
    return torch.clone(table, memory_format=torch.contiguous_format)
