"""The plain PyTorch that the kernels are compared with does what the model does."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from dp_calc.kernels.edge_weights import WeightTables
from dp_calc.models.cohorts import CohortLayout
from dp_calc.models.dpa4.attention import EdgeAttention, FocusCompetition
from torch import nn

from .problems import TILE, problem, with_gradients

EPS = 1e-3
CHANNELS = 16  # of a head


def with_random_parameters(module):
    generator = torch.Generator().manual_seed(8)
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            values = torch.randn(
                parameter.shape, generator=generator, dtype=torch.float64
            )
            setattr(part, name, nn.Parameter(values, requires_grad=False))
    return module


def parts_of_a_model(n_streams, n_heads, normed, biased):
    config = SimpleNamespace(
        atten_f_mix=False,
        n_focus=n_streams,
        n_atten_head=n_heads,
        hidden_channels=n_streams * n_heads * CHANNELS,
        focus_channels=n_heads * CHANNELS,
        eps=EPS,
        edge_norm=normed,
        mlp_bias=biased,
    )
    parts = (EdgeAttention(config), FocusCompetition(config))
    return tuple(map(with_random_parameters, parts))


def tables_of(attention, competition):
    """As a model that uses the kernels makes them."""
    if attention.streams == 1:
        return WeightTables(attention.null)
    norm, matrix = competition.focus_compete_norm, competition.adamw_focus_compete_w.T
    if isinstance(norm, nn.Identity):
        return WeightTables(attention.null, matrix, competition.focus_compete_bias)
    matrix = matrix * norm.adam_scale
    bias = competition.focus_compete_bias
    return WeightTables(attention.null, matrix, bias, norm.eps)


def in_the_model(attention, competition, rows, real, gate):
    """The same function of the same inputs, and of the gate of the source."""

    def weights(radial, query, key, envelope, *scalars):
        view = SimpleNamespace(
            layout=CohortLayout(*rows, real), envelope=envelope, source_gate=gate
        )
        expanded = query[rows[0].repeat_interleave(TILE)]
        weight = attention(view, radial, expanded, key)[:, ::CHANNELS]
        if not scalars:
            return weight
        streams = scalars[0].unflatten(1, (attention.streams, -1)).movedim(1, 0)
        share = competition(streams).T
        return weight * share.repeat_interleave(attention.n_heads, dim=1)

    return weights


@pytest.mark.parametrize(
    ("n_streams", "n_heads", "normed", "biased"),
    [(1, 1, True, True), (1, 2, True, True), (2, 1, True, False), (3, 2, False, True)],
)
@pytest.mark.parametrize("tiny", [1.0, 1e-30])
def test_it_is_the_attention_and_competition_of_the_model(
    n_streams, n_heads, normed, biased, tiny
):
    attention, competition = parts_of_a_model(n_streams, n_heads, normed, biased)
    case = problem([0, 40, 5, 0, 17], n_streams, n_heads, CHANNELS, unused=2)
    case = replace(case, tables=tables_of(attention, competition))
    _, query, key, envelope, *scalars = (x.double() for x in case.inputs)
    radial = 10 * key.flip(0)
    real = (envelope > 0).double()
    gate = torch.linspace(0.1, 1, len(real), dtype=torch.float64)
    envelope[5:50] *= tiny
    envelope[60] = 0

    def reference(radial, query, key, envelope, *scalars):
        streams = radial.unflatten(1, (n_streams, -1))
        bias = torch.einsum("efc,cfh->efh", streams, attention.adamw_attn_logit_w)
        return case.exact(bias.flatten(1), query, key, envelope * gate.sqrt(), *scalars)

    model = in_the_model(attention, competition, case.rows, real, gate)
    inputs = (radial, query, key, envelope, *scalars)
    results = with_gradients(reference, inputs, case.cotangent.double())
    expected = with_gradients(model, inputs, case.cotangent.double())
    for result, wanted in zip(results, expected, strict=True):
        assert wanted.any()
        torch.testing.assert_close(result, wanted, rtol=1e-10, atol=1e-12)
