"""The table builder against nets, their derivatives and stored tables."""

import numpy as np
import pytest
import torch
from dp_calc.kernels.tabulate import (
    Domain,
    build_table,
    one_sided_range,
    se_r,
    se_t_tebd,
    two_sided_range,
)
from torch import nn

from .problems import DATA

STORED = [
    ("table_one_sided", "net0", False),
    ("table_two_sided", "net0", True),
    ("table_two_sided", "net2", True),
]
STORED_NETS = pytest.mark.parametrize(("file", "net", "two_sided"), STORED)


class ResidualNet(nn.Module):
    """An embedding net of DeePMD's layout, with an optional scale on each layer."""

    def __init__(self, weights, activation=torch.tanh, scale=None):
        super().__init__()
        self.weights, self.activation, self.scale = weights, activation, scale

    def forward(self, x):
        for matrix, bias in self.weights:
            y = self.activation(x @ matrix + bias)
            if self.scale is not None:
                y = y * self.scale
            n_in, n_out = matrix.shape
            if n_out in (n_in, 2 * n_in):
                y = y + x.repeat(1, n_out // n_in)
            x = y
        return x


def random_net(**options):
    generator = torch.Generator().manual_seed(5)
    sizes = [(1, 4), (4, 8), (8, 8)]
    weights = [
        (
            torch.randn(n, m, dtype=torch.float64, generator=generator) / n**0.5,
            torch.randn(m, dtype=torch.float64, generator=generator),
        )
        for n, m in sizes
    ]
    return ResidualNet(weights, **options)


def stored(file, net):
    with np.load(DATA / f"{file}.npz") as arrays:
        values = {key: torch.from_numpy(arrays[key]) for key in arrays}
    prefix = f"{net}."
    own = {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
    weights = [(own[f"w{layer}"], own[f"b{layer}"]) for layer in range(3)]
    return values, own, ResidualNet(weights)


def spline_and_derivatives(table, info, x, two_sided):
    """Value and first and second derivative of every channel, each (n, K)."""
    channels = table.shape[1] // 6
    x = x.clone().requires_grad_()
    if two_sided:
        y = se_t_tebd(table, info, x, torch.zeros_like(x)[:, None, None], channels)
    else:
        y = se_r(table, info, x[:, None], channels)
    y = y.reshape(len(x), channels)
    columns = []
    for k in range(channels):
        (first,) = torch.autograd.grad(y[:, k].sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, retain_graph=True)
        columns.append((first.detach(), second))
    first, second = (torch.stack(part, -1) for part in zip(*columns, strict=True))
    return y.detach(), first, second


@STORED_NETS
def test_table_follows_the_net(file, net, two_sided):
    _, own, function = stored(file, net)
    lower, upper, right, fine, coarse, _ = own["info"].tolist()
    domain = Domain(lower, upper, right, fine, coarse, two_sided)
    table, info = build_table(function, domain)
    assert torch.equal(info, own["info"])
    inside = (own["x"] >= domain.left) & (own["x"] < domain.right)
    results = spline_and_derivatives(table, info, own["x"], two_sided)
    tolerances = {"y": 2e-7, "dy": 1e-6, "d2y": 2e-5}
    for (key, tolerance), result in zip(tolerances.items(), results, strict=True):
        error = (result - own[key])[inside].abs().max()
        assert error < tolerance, key


@STORED_NETS
def test_stored_tables_are_reproduced(file, net, two_sided):
    """Two rows of stored two-sided tables were built with the wrong width."""
    _, own, function = stored(file, net)
    lower, upper, right, fine, coarse, _ = own["info"].tolist()
    domain = Domain(lower, upper, right, fine, coarse, two_sided)
    table, info = build_table(function, domain)
    nodes = domain.nodes()
    x = nodes[:-1] + 0.37 * nodes.diff()
    sound = torch.ones(domain.rows, dtype=torch.bool)
    if two_sided:
        sound[[domain.wing, domain.wing + domain.middle]] = False
    ours = spline_and_derivatives(table, info, x, two_sided)
    theirs = spline_and_derivatives(own["table"], info, x, two_sided)
    for a, b in zip(ours[:2], theirs[:2], strict=True):
        assert (a - b)[sound].abs().max() < 1e-9


def test_ranges_of_stored_tables():
    for file, net, two_sided in STORED:
        values, own, _ = stored(file, net)
        r, start, end = (float(values[k]) for k in ("min_nbor_dist", "rcut_smth", "rcut"))
        q = min(max((r - start) / (end - start), 0.0), 1.0)
        peak = (q**3 * (-6 * q**2 + 15 * q - 10) + 1) / r
        mean, stddev = values["davg"], values["dstd"]
        if two_sided:
            edges = two_sided_range(stddev[:, 1:4], peak)
        else:
            edges = one_sided_range(mean[:, 0], stddev[:, 0], peak)
        domain = Domain.from_range(
            *edges,
            two_sided=two_sided,
            stride=float(values["stride_arg"]),
            extrapolate=float(values["extrapolate"]),
        )
        torch.testing.assert_close(domain.info(), own["info"], rtol=1e-12, atol=0)


def test_range_covers_every_centre_type():
    stddev = torch.tensor([[0.5, 0.5], [0.125, 0.25]], dtype=torch.float64)
    assert two_sided_range(stddev, 1.0) == (-64.0, 64.0)
    mean = torch.tensor([[0.25, 0.0], [0.5, 0.0]], dtype=torch.float64)
    assert one_sided_range(mean, stddev, 1.0) == (-4.0, 4.0)


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale": 0.3},
        {"activation": nn.GELU("tanh")},
        {"activation": nn.SiLU()},
        {"activation": nn.Softplus()},
        {"activation": torch.sigmoid},
        {"activation": lambda x: x},
    ],
    ids=["tanh", "idt", "gelu", "silu", "softplus", "sigmoid", "linear"],
)
def test_activations_and_layer_scales(options, two_sided):
    function = random_net(**options)
    domain = Domain.from_range(-2, 3, two_sided=two_sided, stride=0.01, extrapolate=3)
    table, info = build_table(function, domain)
    ends = {1e-8: (domain.lower, domain.upper), 1e-3: (domain.left, domain.right)}
    for tolerance, (start, end) in ends.items():
        x = torch.linspace(start + 1e-3, end - 1e-3, 501, dtype=torch.float64)
        value, _, _ = spline_and_derivatives(table[:, :6], info, x, two_sided)
        with torch.no_grad():
            expected = function(x[:, None])[:, :1]
        assert (value - expected).abs().max() < tolerance


@pytest.mark.parametrize("two_sided", [False, True])
def test_two_continuous_derivatives_at_every_border(two_sided):
    domain = Domain.from_range(-2, 2, two_sided=two_sided, stride=0.01, extrapolate=2)
    table, _ = build_table(random_net(), domain)
    a = table.reshape(domain.rows, -1, 6)
    t = domain.nodes().diff()[:-1, None]
    end = [sum(a[:-1, :, p] * t**p for p in range(6))]
    end.append(sum(p * a[:-1, :, p] * t ** (p - 1) for p in range(1, 6)))
    end.append(sum(p * (p - 1) * a[:-1, :, p] * t ** (p - 2) for p in range(2, 6)) / 2)
    for p in range(3):
        assert (end[p] - a[1:, :, p]).abs().max() < 1e-10


def test_degree_five_is_exact():
    domain = Domain.from_range(-1, 2, two_sided=False, stride=0.1, extrapolate=2.5)

    def quintic(x):
        return torch.cat([1 + x - 2 * x**3 + x**5 / 4, x**4], -1)

    table, info = build_table(quintic, domain)
    x = domain.nodes()[:-1] + 0.04
    value, first, _ = spline_and_derivatives(table, info, x, False)
    torch.testing.assert_close(value, quintic(x[:, None]), rtol=1e-10, atol=1e-10)
    slope = torch.stack([1 - 6 * x**2 + 1.25 * x**4, 4 * x**3], -1)
    torch.testing.assert_close(first, slope, rtol=1e-9, atol=1e-9)


def test_float32_is_rounded_once():
    domain = Domain.from_range(-1, 2, two_sided=False)
    table, info = build_table(random_net(), domain, torch.float32)
    exact, _ = build_table(random_net(), domain)
    assert table.dtype == info.dtype == torch.float32
    assert torch.equal(table, exact.float())


def test_nothing_of_the_net_is_changed():
    net = nn.Sequential(nn.Linear(1, 4), nn.Tanh()).double()
    table, _ = build_table(net, Domain.from_range(-1, 2, two_sided=False))
    assert not table.requires_grad
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x: x.float(), "must compute in float64"),
        (lambda x: x[:, 0], "must map"),
        (lambda x: x[1:], "must map"),
        (lambda x: 1 / x, "not finite everywhere"),
    ],
)
def test_functions_that_cannot_be_tabulated(function, match):
    with pytest.raises(ValueError, match=match):
        build_table(function, Domain.from_range(-1, 2, two_sided=False))


@pytest.mark.parametrize(
    ("arguments", "options", "match"),
    [
        ((0, 7), {"stride": 0.03}, "do not divide"),
        ((-1, 2), {"stride": 0.01, "extrapolate": 1.03}, "do not divide"),
        ((-1, 2), {"extrapolate": 1.0}, "extrapolate must be above 1"),
        ((-1, 2), {"extrapolate": float("nan")}, "extrapolate must be above 1"),
        ((-1, 2), {"stride": 0.0}, "strides must be positive"),
        ((-1, 2), {"stride": -0.01}, "strides must be positive"),
        ((-3, -1), {}, "upper edge of a table must be positive"),
        ((2, 2), {}, "must rise"),
        ((-1, float("inf")), {}, "must be finite"),
    ],
)
def test_domains_that_are_refused(arguments, options, match):
    with pytest.raises(ValueError, match=match):
        Domain.from_range(*arguments, two_sided=False, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("width", [1, 3, 7, 30, 999, 2000])
def test_default_strides_divide_every_whole_width(width, dtype):
    for two_sided, rows in ((False, width * 100), (True, width * 20)):
        lower = -width if two_sided else 0
        domain = Domain.from_range(lower, width, two_sided=two_sided)
        assert domain.middle == rows
        assert Domain.from_info(domain.info(dtype), two_sided, domain.rows)


def test_a_table_that_would_fill_the_memory_is_refused():
    with pytest.raises(ValueError, match="choose larger ones"):
        Domain.from_range(0.0, 1.0, two_sided=False, stride=1e-9)
