"""The Triton path, on a CUDA device or in Triton's interpreter (test_interpreter.py)."""

import math

import pytest
import torch
from dp_calc.kernels.tabulate import fused, ops, reference, se_r
from dp_calc.kernels.tabulate.select import choose
from torch.autograd import forward_ad, gradgradcheck

from .problems import OPERATORS, all_orders, call, deviation, random_problem, stored_cases
from .second_order import check_second_order
from .stored import check_stored

pytestmark = pytest.mark.gpu

EACH_OPERATOR = pytest.mark.parametrize("operator", OPERATORS)
CASES = pytest.mark.parametrize("case", stored_cases(), ids=str)
SIZES = [  # operator, nloc, nnei, channels, components
    ("se_a", 1, 1, 1, 4),
    ("se_a", 2, 37, 33, 4),
    ("se_a", 1, 3, 5, 25),
    ("se_atten", 2, 6, 130, 4),
    ("se_atten", 1, 2, 3, 16),
    ("se_t", 1, 300, 3, 4),  # 600 pairs: more than one program sums
    ("se_t", 3, 2, 64, 4),
    ("se_t_tebd", 2, 17, 7, 4),
    ("se_r", 1, 33, 100, 4),
]


def on_device(operator, device, kernels="triton", **options):
    return random_problem(operator, device=device, kernels=kernels, **options)


def check_like_torch(operator, device, tolerance, *, orders=2, **options):
    results = all_orders(on_device(operator, device, **options), orders)
    expected = all_orders(on_device(operator, device, "torch", **options), orders)
    for place, (result, target) in enumerate(zip(results, expected, strict=True)):
        assert result.shape == target.shape
        assert deviation(result, target) <= tolerance, place


@CASES
def test_stored_values_and_derivatives(case, device):
    check_stored(case, case.problem(device=device, kernels="triton"), 1e-12)


@EACH_OPERATOR
def test_gradgradcheck(operator, device):
    problem = on_device(operator, device, nloc=1, nnei=5)
    fast = device == "cpu"  # the interpreter is slow
    assert gradgradcheck(problem, problem.inputs, fast_mode=fast)


@EACH_OPERATOR
def test_second_order_against_central_differences_in_float32(operator, device):
    problem = on_device(operator, device, nloc=1, nnei=5, dtype=torch.float32)
    check_second_order(problem, problem.inputs, directions=1)


@EACH_OPERATOR
def test_third_order(operator, device):
    check_like_torch(operator, device, 1e-11, orders=3, nloc=1, nnei=5)


@pytest.mark.parametrize(("operator", "nloc", "nnei", "channels", "components"), SIZES)
def test_awkward_sizes(operator, nloc, nnei, channels, components, device):
    check_like_torch(
        operator,
        device,
        1e-12,
        nloc=nloc,
        nnei=nnei,
        channels=channels,
        components=components,
    )


@pytest.mark.parametrize(("nloc", "nnei"), [(0, 3), (2, 0)])
@EACH_OPERATOR
def test_empty_axes(operator, nloc, nnei, device):
    check_like_torch(operator, device, 0.0, nloc=nloc, nnei=nnei)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # interpreter
@EACH_OPERATOR
def test_nan_goes_through(operator, device):
    results = []
    for kernels in ("triton", "torch"):
        problem = on_device(operator, device, kernels, nloc=2, nnei=3)
        with torch.no_grad():
            problem.inputs[0].view(-1)[1] = math.nan
        results.append(all_orders(problem, 2))
    for result, expected in zip(*results, strict=True):
        torch.testing.assert_close(
            result, expected, rtol=1e-11, atol=1e-11, equal_nan=True
        )
    assert results[0][0].isnan().any()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # interpreter
@EACH_OPERATOR
def test_infinite_and_far_arguments_stay_inside_the_table(operator, device):
    problem = on_device(operator, device, nloc=1, nnei=4, channels=1)
    with torch.no_grad():
        flat = problem.inputs[0].view(-1)
        flat[:4] = torch.tensor([1e300, -1e300, math.inf, -math.inf]).to(flat)
        torch.testing.assert_close(
            problem(*problem.inputs),
            call(operator, problem.table, problem.info, problem.inputs),
            equal_nan=True,
        )


@EACH_OPERATOR
def test_poisoned_surroundings_and_outputs(operator, device):
    """NaN before and after every input, and in every new tensor before it is filled."""
    problem = on_device(operator, device, nloc=2, nnei=3, channels=3)
    expected = all_orders(problem, 2)

    def embed(tensor):
        n = tensor.numel()
        buffer = torch.full((n + 64,), math.nan, dtype=tensor.dtype, device=device)
        buffer[32 : 32 + n] = tensor.detach().reshape(-1)
        return buffer[32 : 32 + n].view(tensor.shape)

    object.__setattr__(problem, "table", embed(problem.table))
    inputs = tuple(embed(t).requires_grad_() for t in problem.inputs)
    object.__setattr__(problem, "inputs", inputs)
    was = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # fills new tensors with NaN
    try:
        assert torch.empty(3, device=device).isnan().all()
        results = all_orders(problem, 2)
    finally:
        torch.use_deterministic_algorithms(was)
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


@EACH_OPERATOR
def test_layout_of_inputs_and_cotangents_does_not_matter(operator, device):
    problem = on_device(operator, device, nloc=2, nnei=4)
    expected = problem(*problem.inputs)
    expected_first = torch.autograd.grad(expected.sum(), problem.inputs)
    strided = [t.detach().repeat_interleave(2, -1)[..., ::2] for t in problem.inputs]
    strided = [t.requires_grad_() for t in strided]
    value = problem(*strided)
    first = torch.autograd.grad(value.sum(), strided)
    assert torch.equal(value, expected)
    assert all(torch.equal(a, b) for a, b in zip(first, expected_first, strict=True))


def test_only_the_asked_gradients_are_computed(device):
    """Every subset of inputs that need a gradient gives the gradients of the full set."""
    problem = on_device("se_atten", device, nloc=1, nnei=3)
    cotangent = torch.ones_like(problem(*problem.inputs))
    expected = torch.autograd.grad(problem(*problem.inputs), problem.inputs, cotangent)
    for mask in range(1, 8):
        needed = [bool(mask >> place & 1) for place in range(3)]
        inputs = [
            t.detach().requires_grad_(need)
            for t, need in zip(problem.inputs, needed, strict=True)
        ]
        asked = [t for t in inputs if t.requires_grad]
        first = torch.autograd.grad(problem(*inputs), asked, cotangent)
        wanted = [g for g, need in zip(expected, needed, strict=True) if need]
        assert all(deviation(a, b) < 1e-14 for a, b in zip(first, wanted, strict=True))


def test_forward_mode_is_refused_or_left_to_plain_pytorch(device):
    problem = on_device("se_r", device)
    (x,) = problem.inputs
    value = problem(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach(), torch.ones_like(x))
        with pytest.raises(ValueError, match="forward mode"):
            problem(dual)
        results = [
            call("se_r", problem.table, problem.info, (dual,), kernels=kernels)
            for kernels in ("auto", "torch")
        ]
        tangents = [forward_ad.unpack_dual(result).tangent for result in results]
        assert torch.equal(*tangents)
        cotangent = forward_ad.make_dual(torch.ones_like(value), torch.ones_like(value))
        with pytest.raises(RuntimeError, match="forward mode"):
            torch.autograd.grad(value, x, cotangent)


def test_gradients_of_many_cotangents_at_once(device):
    problem = on_device("se_a", device, nloc=1, nnei=3)
    rows = []
    for kernels in ("triton", "torch"):
        y = call("se_a", problem.table, problem.info, problem.inputs, kernels=kernels)
        x = problem.inputs[0]
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        unit = torch.eye(x.numel(), dtype=x.dtype, device=device)
        rows.append(
            torch.autograd.grad(first.flatten(), x, unit, is_grads_batched=True)[0]
        )
    assert deviation(*rows) < 1e-13


def test_operators_are_registered_completely(device):
    problem = on_device("se_atten", device, nloc=1, nnei=2, channels=1)
    x, em, two_embed = problem.inputs
    planes = fused._planes(problem.table)
    a, f = em[:, :, None, :], two_embed.reshape(1, 2, 1)
    u = torch.randn(1, 4, 1, dtype=x.dtype, device=device, requires_grad=True)
    stop = torch.tensor([1], device=device)
    common = (planes, problem.info, x)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    for operator, arguments in (
        (ops.sum_neighbors, (*common, a, f, stop, 0, False, True)),
        (ops.sum_channels, (*common, f, u, stop, 0, 2, False, True)),
        (ops.sum_components, (*common, a, u, stop, 0, False)),
    ):
        torch.library.opcheck(operator, arguments, test_utils=checks)


def test_explicit_choice_runs_the_fused_path(device):
    problem = on_device("se_r", device)
    assert choose("triton", problem.table).__name__.endswith("fused")
    assert choose("torch", problem.table) is reference
    with pytest.raises(ValueError, match="the table asks for a gradient"):
        choose("triton", problem.table.requires_grad_())
    with torch.no_grad():
        assert choose("triton", problem.table).__name__.endswith("fused")


def test_a_table_of_another_length_is_refused(device):
    problem = on_device("se_r", device)
    with pytest.raises(ValueError, match="do not belong together"):
        se_r(problem.table[1:], problem.info, *problem.inputs, 2, kernels="triton")


@pytest.mark.parametrize("operator", ["se_atten", "se_r"])  # all kernels
def test_compiled_whole(operator, device):
    """torch.compile takes the operator without a break, forward and backward."""
    problem = on_device(operator, device, nloc=2, nnei=4)
    backend = "inductor" if device == "cuda" else "aot_eager"

    def energy(*inputs):
        return call(
            operator, problem.table, problem.info, inputs, kernels="triton"
        ).square()

    expected = energy(*problem.inputs)
    compiled = torch.compile(energy, fullgraph=True, backend=backend)
    value = compiled(*problem.inputs)
    assert deviation(value, expected) < 1e-14
    first = torch.autograd.grad(value.sum(), problem.inputs)
    expected_first = torch.autograd.grad(expected.sum(), problem.inputs)
    for result, target in zip(first, expected_first, strict=True):
        assert deviation(result, target) < 1e-13
