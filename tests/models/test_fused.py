"""Models on kernels against plain PyTorch in float64, on a GPU or interpreted."""

import numpy as np
import pytest
import torch
from dp_calc.kernels.so2 import KernelOptions, ops
from dp_calc.models import (
    EdgeList,
    StreamExecutor,
    TiledExecutor,
    make_cohorts,
    make_tiles,
)
from dp_calc.models.dpa4.attention import EdgeAttention
from dp_calc.models.dpa4.embedding import EnvironmentSeed
from dp_calc.models.dpa4.fused import fuse
from dp_calc.models.dpa4.geometry import EdgeRotation
from dp_calc.models.dpa4.radial import RadialBasis, RadialNetwork
from dp_calc.models.dpa4.so2 import MixingStack
from widened import in_float32, widened

from dp_calc.evaluation import evaluate_model

from ..kernels.interpreter import round_rows_alike

pytestmark = pytest.mark.gpu

MODELS = {
    "nano": ("nano_narrow", {"channels": 16, "n_blocks": 1}),
    "neo": ("neo_narrow", {"channels": 16, "n_blocks": 1, "lmax": 2}),
    "two blocks": ("plain", {"channels": 16}),
    "heads": ("plain", {"channels": 32, "n_blocks": 1, "n_atten_head": 2}),
    "degrees": ("plain", {"channels": 16, "n_blocks": 1, "radial_so2_mode": "degree"}),
    "ranks": ("plain", {"channels": 16, "n_blocks": 1, "radial_so2_rank": 2}),
    "wide streams": ("plain", {"channels": 16, "n_blocks": 1, "n_focus": 2,
                               "focus_dim": 32}),
}  # fmt: skip
SMALL = ("plain", {"channels": 16, "n_blocks": 1, "lmax": 1})


def graph(rcut, device):
    """Four atoms: one with more edges than a cohort, one with none, which sends two."""
    generator = torch.Generator().manual_seed(1)
    dst = torch.tensor([0] * 18 + [1] * 3 + [3])
    src = torch.tensor([*[0] * 6, *[1] * 7, *[2] * 1, *[3] * 4, 0, 2, 3, 1])
    vec = torch.randn(22, 3, generator=generator, dtype=torch.float64)
    length = 1.5 + (rcut - 1.6) * torch.rand(22, 1, generator=generator).double()
    vec = vec / vec.norm(dim=1, keepdim=True) * length
    return EdgeList.from_sorted(src.to(device), dst.to(device), vec.to(device), 4)


def stream(model):
    return lambda edges, view: StreamExecutor(
        edges, view, make_cohorts(edges, 16, model.dtype), 3, 2 * model.rcut
    )


def tiled(model, far=2.0):
    return lambda edges, view: TiledExecutor(
        edges.vec, view, make_tiles(edges, model.dtype), far * model.rcut
    )


def run(model, executor=None):
    edges = graph(model.rcut, model.device)
    types = torch.tensor([0, 1, 1, 0], device=model.device)
    return evaluate_model(model, types, edges, {}, executor)


def pair(model, device):
    """The model in float64, and in float32."""
    name, options = model
    exact = widened(name, **options)
    return exact.to(device), in_float32(exact).to(device)


def check(outputs, plain, exact):
    """Not worse than twice what float32 without kernels is off from float64."""
    pairs = zip(*map(compared, (outputs, plain, exact)), strict=True)
    for result, usual, expected in pairs:
        largest = expected.abs().max()
        assert largest > 1e-3
        usual_error = (usual - expected).abs().max()
        assert usual_error <= 1e-5 * largest
        error = (result - expected).abs().max()
        assert error <= 2 * usual_error + 2e-7 * largest


def compared(outputs):
    return outputs.energies, outputs.forces, outputs.atomic_virials


def check_equal(outputs, others):
    for result, expected in zip(compared(outputs), compared(others), strict=True):
        assert torch.equal(result, expected)


@pytest.fixture
def calls(monkeypatch):
    """How often each operator is called."""
    counted = dict.fromkeys(ops.__all__, 0)

    def count(name):
        operator = getattr(ops, name)

        def counting(*args):
            counted[name] += 1
            return operator(*args)

        monkeypatch.setattr(ops, name, counting)

    for name in counted:
        count(name)
    return counted


def check_fused(model, precision, make, device):
    exact, plain = pair(model, device)
    fused = fuse(plain, KernelOptions(precision))
    check(run(fused, make(fused)), run(plain), run(exact))


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_tiles_give_the_float64_numbers(model, device):
    check_fused(model, "bf16x6", tiled, device)


def test_stream_gives_the_float64_numbers(device):
    check_fused(MODELS["heads"], "bf16x6", stream, device)


@pytest.mark.parametrize("precision", ["ieee", "tf32x3", "fp16x3"])
def test_precisions(precision, device):
    check_fused(SMALL, precision, tiled, device)


def test_the_operators_run_and_only_in_the_fused_model(device, calls):
    exact, plain = pair(SMALL, device)
    fused = fuse(plain, KernelOptions("bf16x6"))
    run(plain)
    run(exact)
    assert not any(calls.values())
    run(fused, tiled(fused))
    assert all(calls.values())


def test_cohorts_have_the_bits_of_native(device, monkeypatch):
    round_rows_alike(monkeypatch)
    _, plain = pair(SMALL, device)
    native, cohort = (fuse(plain, KernelOptions("bf16x6", n)) for n in (0, 16))
    check_equal(run(cohort, tiled(cohort)), run(native, tiled(native)))


def test_padding_cannot_leak(device):
    _, plain = pair(SMALL, device)
    fused = fuse(plain, KernelOptions("bf16x6"))
    near, far = (run(fused, tiled(fused, far)) for far in (2.0, 50.0))
    check_equal(near, far)


def test_weights_are_shared_and_the_model_stays_as_it_is(device):
    _, plain = pair(SMALL, device)
    state = {k: v.clone() for k, v in plain.state_dict().items()}
    kinds = {name: type(module) for name, module in plain.named_modules()}
    before = run(plain)
    fused = fuse(plain, KernelOptions("bf16x6"))
    run(fused, tiled(fused))
    check_equal(run(plain), before)
    assert plain.kernel_options is None
    assert {name: type(module) for name, module in plain.named_modules()} == kinds
    assert plain.state_dict().keys() == state.keys()
    assert all(torch.equal(v, state[k]) for k, v in plain.state_dict().items())
    places = {x.data_ptr() for x in [*plain.parameters(), *plain.buffers()]}
    assert all(x.data_ptr() in places for x in fused.parameters())


def test_second_derivatives_are_refused(device):
    _, plain = pair(SMALL, device)
    fused = fuse(plain, KernelOptions("bf16x6"))
    edges = graph(fused.rcut, device)
    edges.vec.requires_grad_()
    types = torch.tensor([0, 1, 1, 0], device=device)
    energies = fused(types, edges, executor=tiled(fused))
    (first,) = torch.autograd.grad(energies.sum(), edges.vec, create_graph=True)
    with pytest.raises(RuntimeError, match=r"first derivatives only|no autograd formula"):
        torch.autograd.grad(first.square().sum(), edges.vec)


def test_no_atom_has_an_edge(device):
    exact, plain = pair(SMALL, device)
    fused = fuse(plain, KernelOptions("bf16x6"))
    nothing = torch.zeros(0, dtype=torch.int64, device=device)
    vec = torch.zeros(0, 3, dtype=torch.float64, device=device)
    types = torch.tensor([0, 1], device=device)
    edges = EdgeList.from_sorted(nothing, nothing, vec, 2)
    expected = evaluate_model(exact, types, edges, {}).energies
    for executor in (stream(fused), tiled(fused)):
        outputs = evaluate_model(fused, types, edges, {}, executor)
        np.testing.assert_allclose(
            outputs.energies.cpu(), expected.cpu(), rtol=1e-6, atol=0
        )
        assert not outputs.forces.any()


@pytest.mark.parametrize("name", ["neo", "nano"])
def test_nothing_of_the_plain_edges_runs(name, device, monkeypatch):
    """A part that runs beside its kernel is as right, and as slow as without."""
    _, plain = pair(MODELS[name], device)
    fused = fuse(plain, KernelOptions("ieee"))
    expected = run(fused, stream(fused))

    def forbidden(*args):
        raise AssertionError("this has a kernel")

    for kind in (RadialBasis, RadialNetwork, EdgeRotation, EdgeAttention, MixingStack):
        monkeypatch.setattr(kind, "forward", forbidden)
    monkeypatch.setattr(EnvironmentSeed, "_of_length", forbidden)
    assert torch.equal(run(fused, stream(fused)).energies, expected.energies)
