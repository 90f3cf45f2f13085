"""Results of the kernels, on a CUDA device or in Triton's interpreter."""

from dataclasses import replace

import pytest
import torch
from dp_calc.kernels.edge_weights import ops
from torch.fx.experimental.proxy_tensor import make_fx

from ..poison import poisoned_new_tensors, surrounded
from .problems import TILE, deviation, problem, with_gradients

pytestmark = pytest.mark.gpu

FLOAT32 = 1e-6
ROWS = [  # edges of each row, unused tiles
    ([], 0),
    ([], 3),
    ([1], 0),
    ([0, 17, 0, 0, 32, 0], 2),
]
STREAMS = [  # streams, heads, channels of a head, whether normed, whether biased
    (1, 1, 16, True, True),
    (1, 3, 16, True, True),
    (2, 1, 32, True, False),
    (2, 2, 16, False, True),
    (3, 1, 16, False, False),
]
FEW = [0, 17]


def check(case, tolerance=FLOAT32):
    pairs = zip(case.results(), case.expected(), strict=True)
    for place, (result, expected) in enumerate(pairs):
        assert deviation(result, expected) <= tolerance, place


def check_equal(results, expected):
    for place, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        assert not result.isnan().any(), place
        assert torch.equal(result, wanted), place


@pytest.fixture
def short_blocks(monkeypatch):
    """Rows are longer than what is read of them at a time."""
    monkeypatch.setattr(ops, "_BLOCK", 32)
    monkeypatch.setattr(ops, "_TILES", 2)


@pytest.mark.parametrize(("degrees", "unused"), ROWS, ids=str)
def test_rows(degrees, unused, device):
    check(problem(degrees, unused=unused, device=device))


@pytest.mark.parametrize("streams", STREAMS, ids=str)
def test_streams(streams, device):
    n_streams, n_heads, channels, normed, biased = streams
    options = {"normed": normed, "biased": biased, "device": device}
    check(problem(FEW, n_streams, n_heads, channels, **options))


def test_columns_that_are_no_whole_block(device):
    check(problem(FEW, 3, 2, 16, device=device))


@pytest.mark.usefixtures("short_blocks")
def test_rows_longer_than_a_block(device):
    check(problem([70], unused=3, device=device))


def with_strength(case, strength):
    bias, query, key, _, *scalars = case.inputs
    return replace(case, inputs=[bias, query, key, strength, *scalars])


def test_edges_without_strength(device):
    """In part of a tile, in a whole tile of a row with others, and in a whole row."""
    case = problem([33, 5, 7], device=device)
    strength = case.inputs[3].clone()
    strength[[0, 3]], strength[16:32], strength[48:64] = 0, 0, 0
    case = with_strength(case, strength)
    check(case)
    weight, of_bias, _, of_key, of_strength, of_scalars = case.results()
    for result in (weight, of_bias, of_key, of_strength, of_scalars):
        assert not result[strength == 0].any()
        assert result[strength > 0].any()


@pytest.mark.parametrize("tiny", [1e-8, 1e-37])
def test_edges_of_tiny_strength(tiny, device):
    """Alone in a row, and beside others."""
    case = problem([5, 12], device=device)
    strength = case.inputs[3].clone()
    strength[:5] *= tiny
    strength[20:25] *= tiny
    case = with_strength(case, strength)
    check(case)
    assert all(x.isfinite().all() for x in case.results())


@pytest.mark.parametrize("tiny", [1.0, 1e-30])
def test_huge_logits(tiny, device):
    """As exact as float32 can tell them."""
    case = problem([20, 7, 1], device=device)
    bias, query, key, strength, scalars = case.inputs
    size = torch.full_like(bias, 200.0)
    size[1::3], size[2::3] = -200, 190
    size[32:48] = -200
    size[45] = 250  # of no edge, in a row of small ones
    inputs = [size + bias, query, key, strength * tiny, scalars]
    case = replace(case, inputs=inputs)
    expected = case.expected()
    rounded = case.expected(torch.float32)
    for result, usual, wanted in zip(case.results(), rounded, expected, strict=True):
        assert result.isfinite().all()
        assert deviation(result, wanted) <= FLOAT32 + 2 * deviation(usual, wanted)


def test_weights_of_a_row_and_nothing_add_up_to_one(device):
    case = problem([30], 1, device=device)
    bias, query, key, strength = case.inputs
    strong = replace(case, inputs=[bias + 30, query, key, strength])
    assert abs(strong.results()[0].sum().item() - 1) < FLOAT32


def test_a_row_does_not_depend_on_the_others(device):
    case = problem([3, 20, 2], device=device)
    bias, _, key, strength, scalars = (x[16:48] for x in case.inputs)
    few = replace(
        problem([20], device=device),
        inputs=[bias, case.inputs[1][[1, 3]], key, strength, scalars],
        tables=case.tables,
        cotangent=case.cotangent[16:48],
    )
    for place, (result, whole) in enumerate(
        zip(few.results(), case.results(), strict=True)
    ):
        expected = whole[[1, 3]] if place == 2 else whole[16:48]
        assert torch.equal(result, expected), place


def test_poisoned_surroundings_and_outputs(device):
    """NaN before and after every input, and in every new tensor before it is filled."""
    case = problem(FEW, unused=1, device=device)
    expected = case.results()
    with poisoned_new_tensors():
        results = case.map(surrounded).results()
    check_equal(results, expected)


def test_layout_in_memory_does_not_matter(device):
    case = problem(FEW, device=device)
    expected = case.results()
    check_equal(case.map(transposed).results(), expected)
    check_equal(case.map(every_other).results(), expected)
    check_equal(case.map(part_of_wider_rows).results(), expected)
    constant = case.map(
        lambda x: x.flatten()[:1].abs().view([1] * x.ndim).expand(x.shape)
    )
    check_equal(constant.results(), constant.map(torch.clone).results())


def transposed(x):
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def every_other(x):
    return x.repeat_interleave(2, -1)[..., ::2]


def part_of_wider_rows(x):
    return torch.cat([x, x, x], dim=-1)[..., x.shape[-1] :][..., : x.shape[-1]]


def test_inputs_are_not_changed_and_repeats_are_identical(device):
    case = problem(FEW, unused=1, device=device)
    before = case.map(torch.clone)
    first = case.results()
    check_equal(case.results(), first)
    check_equal(case.inputs, before.inputs)
    check_equal([case.cotangent], [before.cotangent])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # interpreter
@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")
@pytest.mark.parametrize("place", [3, 4])  # a device does all
def test_what_is_not_finite_shows_in_its_row_and_in_no_other(place, device):
    case = problem([4, 17], device=device)
    sound = case.results()
    case.inputs[place][24] = float("nan")
    results = case.results()
    for result, expected in zip(results, sound, strict=True):
        of_first = 1 if len(result) == 3 else 16
        assert torch.equal(result[:of_first], expected[:of_first])
    of_row = slice(24, 25) if place == 4 else slice(16, 33)
    assert results[0][of_row].isnan().all()


def test_a_trace_for_few_edges_runs_any_number(device):
    def gradients(inputs, cotangent, rows):
        return with_gradients(replace(case, rows=rows).run, inputs, cotangent)

    case = problem([0, 17], device=device)
    trace = make_fx(gradients, tracing_mode="symbolic", _allow_non_fake_inputs=True)
    graph = trace(case.inputs, case.cotangent, case.rows)
    called = {str(node.target) for node in graph.graph.nodes}
    names = ("edge_weights", "edge_weights_backward")
    assert {f"dp_calc.{name}.default" for name in names} <= called
    other = problem([3, 0, 33], unused=1, device=device)
    other = replace(other, tables=case.tables)
    results = graph(other.inputs, other.cotangent, other.rows)
    check_equal(results, other.results())


def test_tiles_of_another_size(device):
    """A tile of 16 is two of 8."""
    case = problem([20], device=device)
    tile_row, tile_ptr = case.rows
    halves = (tile_row.repeat_interleave(2), tile_ptr * 2)
    scalars = case.inputs[4]
    numbers = (case.tables.null, case.tables.competition, case.tables.competition_bias)
    result, *_ = ops.edge_weights(
        *case.inputs[:4], scalars, *halves, *numbers, case.tables.norm_eps, TILE // 2
    )
    assert deviation(result, case.expected()[0]) <= FLOAT32
