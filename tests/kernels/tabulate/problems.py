"""Stored cases and random problems for the tests of the five operators."""

from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
import torch
from dp_calc.kernels import tabulate
from dp_calc.kernels.tabulate import Domain
from torch import Tensor

DATA = Path(__file__).parents[2] / "data" / "tabulate"
OPERATORS = ("se_a", "se_atten", "se_t", "se_t_tebd", "se_r")
FOLDED = ("se_a", "se_atten")
ONE_SIDED = Domain(-1.0, 2.0, 8.0, 0.1, 0.5, two_sided=False)
TWO_SIDED = Domain(-2.0, 2.0, 6.0, 0.1, 0.5, two_sided=True)
REGIONS = {
    "below": (-3.0, -9.03),
    "left": (-0.94, -5.7),
    "fine": (0.53, 0.24),
    "coarse": (2.2, 5.8),
    "above": (19.0, 7.1),
}
"""A point of each region, for one-sided and two-sided tables, far from row borders."""


def is_two_sided(operator: str) -> bool:
    return operator in ("se_t", "se_t_tebd")


def call(operator, table, info, inputs, *, is_sorted=False, kernels="torch"):
    """Call an operator by name; ``inputs`` are those that it differentiates."""
    arguments = list(inputs)
    if operator == "se_t_tebd":
        arguments.append(torch.zeros_like(inputs[0]))
    arguments.append(table.shape[1] // 6)
    if operator == "se_atten":
        arguments.append(is_sorted)
    return getattr(tabulate, operator)(table, info, *arguments, kernels=kernels)


@dataclass(frozen=True)
class Problem:
    """An operator with its table and inputs; calling it evaluates the operator."""

    operator: str
    table: Tensor
    info: Tensor
    inputs: tuple[Tensor, ...]
    kernels: str = "torch"
    is_sorted: bool = False

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self.with_table(self.table, *inputs)

    def with_table(self, table: Tensor, *inputs: Tensor) -> Tensor:
        options = {"is_sorted": self.is_sorted, "kernels": self.kernels}
        return call(self.operator, table, self.info, inputs, **options)


def random_problem(
    operator,
    *,
    nloc=2,
    nnei=5,
    channels=2,
    components=4,
    regions=tuple(REGIONS),
    dtype=torch.float64,
    device="cpu",
    kernels="torch",
    seed=0,
):
    """Random table and inputs that need gradients; arguments go round the regions."""
    generator = torch.Generator().manual_seed(seed)
    two_sided = is_two_sided(operator)
    domain = TWO_SIDED if two_sided else ONE_SIDED
    slots = (nloc, nnei, 2) if two_sided else (nloc, nnei)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    points = torch.tensor([REGIONS[r][two_sided] for r in regions], dtype=torch.float64)
    order = torch.arange(prod(slots)) % len(points)
    jitter = torch.rand(prod(slots), dtype=torch.float64, generator=generator)
    x = (points[order] + 0.02 * jitter - 0.01).reshape(slots)
    em = {
        "se_a": [normal(*slots, components)],
        "se_atten": [normal(*slots, components), normal(prod(slots), channels)],
        "se_t": [normal(*slots)],
    }.get(operator, [])
    table = normal(domain.rows, 6 * channels)
    inputs = tuple(t.to(device, dtype).requires_grad_() for t in (x, *em))
    table = table.to(device, dtype)
    return Problem(operator, table, domain.info(dtype), inputs, kernels)


@dataclass(frozen=True)
class StoredCase:
    """Inputs and expected results of one operator, computed independently."""

    name: str
    operator: str
    names: tuple[str, ...]
    arrays: dict[str, np.ndarray]

    def __str__(self):
        return self.name

    def tensor(self, key, dtype=torch.float64, device="cpu") -> Tensor:
        return torch.from_numpy(self.arrays[key].copy()).to(device, dtype)

    def problem(self, dtype=torch.float64, device="cpu", kernels="torch") -> Problem:
        inputs = [self.tensor(f"in.{name}", dtype, device) for name in self.names]
        return Problem(
            self.operator,
            self.tensor("in.table", dtype, device),
            self.tensor("in.info", dtype),
            tuple(t.requires_grad_() for t in inputs),
            kernels,
            bool(self.arrays.get("in.is_sorted", True)),
        )


@cache
def stored_cases() -> list[StoredCase]:
    files = {
        "se_a": "se_a",
        "se_a_M9": "se_a",
        "se_atten_unsorted": "se_atten",
        "se_atten_sorted": "se_atten",
        "se_t": "se_t",
        "se_t_tebd": "se_t_tebd",
        "se_r": "se_r",
    }
    return [
        StoredCase(f"{file}/{case}", operator, _input_names(arrays), arrays)
        for file, operator in files.items()
        for case, arrays in _by_prefix(np.load(DATA / f"{file}.npz")).items()
        if case != "tied"
    ]


def _by_prefix(arrays) -> dict[str, dict[str, np.ndarray]]:
    cases: dict[str, dict[str, np.ndarray]] = {}
    for key in arrays:
        case, _, name = key.rpartition("/")
        cases.setdefault(case, {})[name] = arrays[key]
    return cases


def _input_names(arrays) -> tuple[str, ...]:
    return tuple(n for n in ("em_x", "em", "two") if f"in.{n}" in arrays)


def deviation(value: Tensor, expected: Tensor) -> float:
    """Largest difference relative to the largest expected number."""
    scale = expected.abs().max().item() if expected.numel() else 0.0
    difference = (value - expected).abs().max().item() if value.numel() else 0.0
    return difference / scale if scale else difference


def all_orders(problem, orders, seed=3):
    """Value, and gradients of weighted sums of the last order's results."""
    generator = torch.Generator().manual_seed(seed)

    def weights_like(tensor):
        numbers = torch.randn(tensor.shape, dtype=torch.float64, generator=generator)
        return numbers.to(tensor)

    value = problem(*problem.inputs)
    cotangent = weights_like(value).requires_grad_()
    points, results = (cotangent, *problem.inputs), [value]
    total = (value * cotangent).sum()
    for order in range(1, orders + 1):
        gradients = torch.autograd.grad(
            total, points, create_graph=order < orders, materialize_grads=True
        )
        results += gradients
        if order < orders:
            total = sum((g * weights_like(g)).sum() for g in gradients[1:])
    return [tensor.detach() for tensor in results]
