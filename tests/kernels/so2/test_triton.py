"""Results of the kernels, on a CUDA device or in Triton's interpreter."""

import pytest
import torch
from dp_calc.kernels.products import INTERPRETED, PRECISIONS
from dp_calc.kernels.so2 import Layout
from torch.fx.experimental.proxy_tensor import make_fx

from ..interpreter import round_rows_alike
from ..poison import poisoned_new_tensors, surrounded
from .problems import (
    TILE,
    deviation,
    mix_problem,
    rotate_in_problem,
    tile_sum_problem,
    with_gradients,
)

pytestmark = pytest.mark.gpu

FLOAT32 = 1e-6
SPLIT = ("ieee", "tf32x3", "bf16x6", "fp16x3")
LAYOUTS = [  # degree, streams, channels: each pair of values but the slowest
    *(Layout(1, *x) for x in ((1, 16), (2, 32), (3, 64))),
    *(Layout(2, *x) for x in ((1, 32), (2, 64), (3, 16), (1, 128))),
    *(Layout(3, *x) for x in ((1, 64), (2, 16), (2, 32))),
    *(Layout(4, *x) for x in ((1, 16), (1, 32), (3, 16))),
]
if INTERPRETED:  # where the wide ones take seconds; a device runs all
    LAYOUTS = LAYOUTS[:-1:2]
ONE, SMALL, ODD = Layout(1, 1, 16), Layout(1, 2, 16), Layout(2, 1, 16)
PROBLEMS = {
    "rotate_in": rotate_in_problem,
    "mix": mix_problem,
    "tile_sum": tile_sum_problem,
}
SIZES = {"rotate_in": 11, "mix": 70, "tile_sum": 48}  # edges: a block and a part
EACH_OPERATOR = pytest.mark.parametrize("operator", PROBLEMS)


@pytest.fixture
def rows_alike(monkeypatch):
    """No row is rounded differently for its place in a tile."""
    round_rows_alike(monkeypatch)


def check(problem, tolerance=FLOAT32):
    pairs = zip(problem.results(), problem.expected(), strict=True)
    for place, (result, expected) in enumerate(pairs):
        assert deviation(result, expected) <= tolerance, place


def check_equal(results, expected):
    for place, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        assert not result.isnan().any(), place
        assert torch.equal(result, wanted), place


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_layouts(layout, device):
    check(rotate_in_problem(layout, 5, device=device))
    check(tile_sum_problem(layout, TILE, device=device))
    precision = SPLIT[LAYOUTS.index(layout) % len(SPLIT)]
    check(mix_problem(layout, 5, precision, device=device))


@pytest.mark.parametrize(("rank", "scaled"), [(0, False), (1, False), (2, True)])
@pytest.mark.parametrize("n_edges", [0, 1, 7, 8, 9])
def test_rotate_in(n_edges, rank, scaled, device):
    check(rotate_in_problem(ODD, n_edges, rank, scaled, device))


@pytest.mark.parametrize("n_heads", [1, 2])
@pytest.mark.parametrize("n_edges", [0, 16, 48, 64, 80])
def test_tile_sum(n_edges, n_heads, device):
    check(tile_sum_problem(Layout(2, 2, 32), n_edges, n_heads, device))


@pytest.mark.parametrize("precision", SPLIT)
def test_precisions_of_mix(precision, device):
    check(mix_problem(ODD, 37, precision, device=device))


@pytest.mark.parametrize("n_edges", [0, 1, 63, 64, 65])
def test_mix(n_edges, device):
    check(mix_problem(SMALL, n_edges, "bf16x6", device=device))


@pytest.mark.parametrize("n_layers", [1, 3])
def test_layers(n_layers, device):
    check(mix_problem(ODD, 20, "bf16x6", n_layers=n_layers, device=device))


def test_tf32_is_what_it_says(device):
    tolerance = FLOAT32 if device == "cpu" else 1e-2  # the interpreter does not round
    check(mix_problem(ODD, 37, "tf32", device=device), tolerance)


def test_every_precision_is_tested():
    assert {*SPLIT, "tf32"} == set(PRECISIONS)


OVERFLOW = pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # interpreter


@OVERFLOW
@pytest.mark.parametrize("precision", SPLIT)
@pytest.mark.parametrize("size", [1e-15, 1e15])
def test_large_and_small_numbers(size, precision, device):
    problem = mix_problem(ONE, 20, precision, device=device)
    check(problem.map(lambda x: size * x))


@OVERFLOW
@pytest.mark.parametrize("precision", SPLIT)
def test_large_edges_do_not_drown_small_ones(precision, device):
    problem = mix_problem(ONE, 20, precision, device=device)
    sizes = torch.tensor([1e-15, 1e15], device=device).repeat(10)[:, None, None]
    problem = problem.map(lambda x: sizes * x)
    for result, expected in zip(problem.results(), problem.expected(), strict=True):
        for edge, wanted in zip(result, expected, strict=True):
            assert deviation(edge, wanted) <= FLOAT32


@pytest.mark.usefixtures("rows_alike")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_cohorts_have_the_bits_of_all_edges_at_once(precision, device):
    """The last cohort is a part; 128 is more than there are edges."""
    native = mix_problem(ONE, 70, precision, n_layers=3, device=device).results()
    for cohort in (16, 48, 64, 128) if precision == "bf16x6" else (48,):
        cohorts = mix_problem(ONE, 70, precision, cohort, n_layers=3, device=device)
        with poisoned_new_tensors():
            results = cohorts.results()
        check_equal(results, native)


@pytest.mark.usefixtures("rows_alike")
@pytest.mark.parametrize("n_edges", [0, 1, 32])
def test_cohorts_of_few_edges_and_of_whole_cohorts(n_edges, device):
    native = mix_problem(SMALL, n_edges, "bf16x6", device=device)
    cohorts = mix_problem(SMALL, n_edges, "bf16x6", 16, device=device)
    check_equal(cohorts.results(), native.results())


@pytest.mark.usefixtures("rows_alike")
@EACH_OPERATOR
def test_an_edge_does_not_depend_on_the_others(operator, device):
    problem = PROBLEMS[operator](SMALL, SIZES[operator], device=device)
    few = problem.map(lambda x: x[-1:] if len(x) == 3 else x[-TILE:])
    if operator != "tile_sum":
        few = problem.map(lambda x: x[-2:])
    for result, whole in zip(few.results(), problem.results(), strict=True):
        assert torch.equal(result, whole[-len(result) :])


@EACH_OPERATOR
def test_poisoned_surroundings_and_outputs(operator, device):
    """NaN before and after every input, and in every new tensor before it is filled."""
    problem = PROBLEMS[operator](SMALL, SIZES[operator], device=device)
    expected = problem.results()
    with poisoned_new_tensors():
        results = problem.map(surrounded).results()
    check_equal(results, expected)


@EACH_OPERATOR
def test_layout_in_memory_does_not_matter(operator, device):
    problem = PROBLEMS[operator](SMALL, SIZES[operator], device=device)
    expected = problem.results()
    check_equal(problem.map(transposed).results(), expected)
    check_equal(problem.map(every_other).results(), expected)
    constant = problem.map(lambda x: x.flatten()[:1].view([1] * x.ndim).expand(x.shape))
    check_equal(constant.results(), constant.map(torch.clone).results())


def transposed(x):
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def every_other(x):
    return x.repeat_interleave(2, -1)[..., ::2]


@EACH_OPERATOR
def test_inputs_are_not_changed(operator, device):
    problem = PROBLEMS[operator](SMALL, SIZES[operator], device=device)
    before = problem.map(torch.clone)
    problem.results()
    check_equal(problem.inputs, before.inputs)
    check_equal(problem.cotangents, before.cotangents)


def test_inputs_and_saved_tensors_are_not_changed_by_cohorts(device):
    problem = mix_problem(ONE, 70, "bf16x6", 48, device=device)
    before = problem.map(torch.clone)
    leaf = problem.inputs[0].requires_grad_()
    (out,) = problem.run(leaf)
    first, again = (
        torch.autograd.grad(out, leaf, problem.cotangents, retain_graph=True)[0]
        for _ in range(2)
    )
    check_equal([first], [again])
    check_equal(
        [leaf.detach(), *problem.cotangents], [*before.inputs, *before.cotangents]
    )


@EACH_OPERATOR
def test_repeats_are_identical(operator, device):
    problem = PROBLEMS[operator](SMALL, SIZES[operator], device=device)
    first = problem.results()
    for _ in range(2):
        check_equal(problem.results(), first)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # interpreter
@OVERFLOW
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
@pytest.mark.parametrize(
    ("poison", "precision"),
    [
        *((float("nan"), precision) for precision in PRECISIONS),
        *((sign * float("inf"), p) for sign in (1, -1) for p in ("bf16x6", "fp16x3")),
    ],
)
def test_what_is_not_finite_stays_in_its_edge(poison, precision, device):
    problem = mix_problem(ONE, 20, precision, device=device)
    (sound, _) = problem.results()
    problem.inputs[0][11, 0, 3] = poison
    (out, grad) = problem.results()
    assert not out[11].isfinite().all()
    assert not grad[11].isfinite().all()
    out[11] = sound[11]
    check_equal([out], [sound])


@pytest.mark.parametrize("operator", ["rotate_in", "tile_sum"])
def test_a_trace_for_few_edges_runs_any_number(operator, device):
    def gradients(inputs, cotangents):
        return with_gradients(problem.run, inputs, cotangents)

    problem = PROBLEMS[operator](SMALL, SIZES[operator], device=device)
    trace = make_fx(gradients, tracing_mode="symbolic", _allow_non_fake_inputs=True)
    graph = trace(problem.inputs, problem.cotangents)
    called = {str(node.target) for node in graph.graph.nodes}
    assert {f"dp_calc.so2_{operator}{end}.default" for end in ("", "_backward")} <= called
    for n_edges in (16, 64):
        other = PROBLEMS[operator](SMALL, n_edges, device=device)
        check_equal(graph(other.inputs, other.cotangents), other.results())


@pytest.mark.parametrize("cohort", [0, 48])
def test_a_trace_for_37_edges_runs_more_than_a_cohort(cohort, device):
    def gradients(inputs, cotangents):
        return with_gradients(problem.run, inputs, cotangents)

    problem = mix_problem(ONE, 37, "bf16x6", cohort, device=device)
    trace = make_fx(gradients, tracing_mode="symbolic", _allow_non_fake_inputs=True)
    graph = trace(problem.inputs, problem.cotangents)
    called = {str(node.target) for node in graph.graph.nodes}
    assert {"dp_calc.so2_mix.default", "dp_calc.so2_mix_backward.default"} <= called
    for n_edges in (1, 100):
        other = mix_problem(ONE, n_edges, "bf16x6", cohort, device=device)
        check_equal(graph(other.inputs, other.cotangents), other.results())
