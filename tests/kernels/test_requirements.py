"""What does not fit is refused in one sentence before anything runs, without a GPU."""

import pytest
import torch
from dp_calc.kernels import requirements, segment
from dp_calc.kernels.requirements import Requirements

PAIR = Requirements(
    "pair",
    left="float32 (N, 3, D)",
    right="float32/float64 (N, D)",
    table="any (D, ...), contiguous",
)


@pytest.fixture
def on_cpu(monkeypatch):
    """Operators that are not told to need a GPU; none is launched here."""
    monkeypatch.setattr(requirements, "_run_without_gpu", lambda: True)


def tensors(**changed):
    fit = {
        "left": torch.ones(5, 3, 4),
        "right": torch.ones(5, 4).double(),
        "table": torch.ones(4, 2, 2, dtype=torch.int32),
    }
    return (fit | changed).values()


@pytest.mark.usefixtures("on_cpu")
def test_what_fits_gives_the_sizes():
    assert PAIR.check(*tensors()) == {"N": 5, "D": 4}
    assert PAIR.check(*tensors(table=torch.ones(4)), N=5) == {"N": 5, "D": 4}
    assert PAIR.check(*tensors(right=None)) == {"N": 5, "D": 4}


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"left": torch.ones(5, 3, 4).double()},
            "pair: left must be float32 (N, 3, D), not float64 (5, 3, 4)",
        ),
        (
            {"left": torch.ones(5, 2, 4)},
            "pair: left must be float32 (N, 3, D), not float32 (5, 2, 4)",
        ),
        (
            {"right": torch.ones(6, 4)},
            "pair: right must be float32/float64 (N, D) with N = 5, D = 4, not float32 "
            "(6, 4)",
        ),
        (
            {"right": torch.ones(5, 4, 1)},
            "pair: right must be float32/float64 (N, D) with N = 5, D = 4, not float32 "
            "(5, 4, 1)",
        ),
        (
            {"table": torch.ones(2, 4).T},
            "pair: table must be any (D, ...), contiguous with D = 4, not float32 "
            "(4, 2), not contiguous",
        ),
        ({"left": 3}, "pair: left must be float32 (N, 3, D), not int"),
        (
            {"right": torch.ones(5, 4, device="meta")},
            "pair: left is on cpu and right on meta; move them to one device",
        ),
    ],
)
def test_what_does_not_fit_is_named(changed, message):
    with pytest.raises(ValueError, match=r"^pair") as raised:
        PAIR.check(*tensors(**changed))
    assert str(raised.value) == message


def test_tensors_that_are_not_on_a_gpu(monkeypatch):
    monkeypatch.setattr(requirements, "_run_without_gpu", lambda: False)
    with pytest.raises(ValueError, match="needs tensors on a CUDA device, these are on "):
        PAIR.check(*tensors())
    anywhere = Requirements("anywhere", False, x="float32 (N,)")
    assert anywhere.check(torch.ones(2)) == {"N": 2}


def sums():
    index, ptr = torch.tensor([0, 0, 1]), torch.tensor([0, 2, 3])
    return torch.ones(3, 2), index, torch.arange(3), ptr


@pytest.mark.parametrize("function", [segment.segment_sum, segment.largest_of_runs])
def test_sums_of_what_does_not_fit(function):
    values, index, order, ptr = sums()
    function(values, index, order, ptr)
    for wrong in (
        (values.half(), index, order, ptr),
        (values, index[:2], order, ptr),
        (values, index.int(), order, ptr),
        (values, index, torch.arange(6)[::2], ptr),
        (values, index, order, ptr.float()),
        (values, index, order, ptr.to("meta")),
    ):
        with pytest.raises(ValueError, match=rf"^{function.__name__}: "):
            function(*wrong)


def test_gathers_and_runs_of_what_does_not_fit():
    values, index, order, ptr = sums()
    with pytest.raises(ValueError, match=r"^gather: index must be int64"):
        segment.gather(values, index.int(), order, ptr)
    with pytest.raises(ValueError, match=r"^sum_runs: flat must be"):
        segment.sum_runs(values[0], order, ptr)


OPERATORS = (
    "rotate_in",
    "mix",
    "tile_sum",
    "edge_weights",
    "edge_frames",
    "radial_features",
    "grid_product",
    "degree_linear",
)


def call_of(name):
    """An operator on kernels, and inputs that fit."""
    pytest.importorskip("triton", reason="needs the package triton")
    from dp_calc.kernels.degree_linear import degree_linear
    from dp_calc.kernels.edge_frames import edge_frames
    from dp_calc.kernels.node_grid import grid_product
    from dp_calc.kernels.radial import radial_features
    from dp_calc.kernels.so2 import Layout
    from dp_calc.models.dpa4.fused_geometry import frame_tables

    from .edge_weights.problems import problem as weights_problem
    from .node_grid.problems import random_problem
    from .so2 import problems as so2
    from .test_radial import tables, vectors

    if name in ("rotate_in", "mix", "tile_sum"):
        problem = getattr(so2, f"{name}_problem")(Layout(1, 2, 16), 16)
        return problem.run, problem.inputs
    if name == "edge_weights":
        problem = weights_problem([5])
        return problem.run, problem.inputs
    if name == "edge_frames":
        known = frame_tables(3, 1e-7, torch.float32)
        return lambda vec: edge_frames(vec, known), [vectors(4)]
    if name == "radial_features":
        network = tables("neo", torch.float32)
        return lambda vec: radial_features(vec, network), [vectors(4)]
    if name == "grid_product":
        problem = random_problem(2, 4, 26, 3)
        return lambda *x: grid_product(*x, problem.matrices), problem.fields
    parts = torch.ones(1, 2, 16, 32), torch.ones(1, 2, 32, 16)
    return lambda x: degree_linear(x, *parts, "ieee"), [torch.ones(3, 4, 16)]


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.usefixtures("on_cpu")
def test_operators_refuse_what_does_not_fit(name):
    run, inputs = call_of(name)
    from dp_calc.kernels.launch import counted

    changes = (
        torch.Tensor.half,
        lambda x: x[..., :-1],
        lambda x: x[0],
        lambda x: x.to("meta"),
    )
    with counted() as launched:
        for change in changes:
            with pytest.raises(ValueError, match=f"^{name}: "):
                run(change(inputs[0]), *inputs[1:])
    assert not launched


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_refuse_the_cpu_unless_interpreted(name, monkeypatch):
    run, inputs = call_of(name)
    monkeypatch.setattr(requirements, "_run_without_gpu", lambda: False)
    with pytest.raises(ValueError, match=f"^{name} needs tensors on a CUDA device"):
        run(*inputs)


def test_tables_that_kernels_would_read_in_another_order():
    pytest.importorskip("triton", reason="needs the package triton")
    from dp_calc.kernels.degree_linear import degree_linear
    from dp_calc.kernels.so2 import Layout, rotate_in

    from .so2.problems import rotate_in_problem

    parts = torch.ones(1, 2, 16, 32)
    with pytest.raises(
        ValueError, match=r"^degree_linear: weight_t must be .* contiguous"
    ):
        degree_linear(torch.ones(3, 4, 16), parts, parts.mT, "ieee")
    layout = Layout(1, 2, 16)
    inputs = rotate_in_problem(layout, 16).inputs
    scale = torch.ones(layout.width, 2).T[:1]
    with pytest.raises(ValueError, match=r"^rotate_in: scale must be .* contiguous with"):
        rotate_in(*inputs, scale, 1, layout.channels)


@pytest.mark.usefixtures("on_cpu")
def test_sizes_that_do_not_belong_together():
    pytest.importorskip("triton", reason="needs the package triton")
    from dp_calc.kernels.so2 import Layout, rotate_in

    from .so2.problems import rotate_in_problem

    inputs = rotate_in_problem(Layout(1, 2, 16), 16, rank=1).inputs
    with pytest.raises(ValueError, match=r"^rotate_in: streams of 24 channels"):
        rotate_in(*inputs, None, 1, 24)
    with pytest.raises(ValueError, match=r"^rotate_in: rank 2 takes 10 factors"):
        rotate_in(*inputs, None, 2, 16)
