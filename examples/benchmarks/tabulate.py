"""Time and memory of the five tabulated operators: Triton kernels against plain PyTorch.

    python examples/benchmarks/tabulate.py --out tabulate.csv

Every operator is run forward, backward and double backward (the gradient of a weighted
sum of the first gradients by the cotangent and by every input). A row of the result has

* ``milliseconds``: median of that pass alone, from CUDA events, after warm-up;
* ``peak_mib``: largest amount of memory in use, from the first pass on up to the end of
  that one, above the inputs and the cotangents;
* ``inputs_mib``: inputs and cotangents.

The three-body operators se_t and se_t_tebd take pairs of neighbours. All pairs of 120
neighbours would make a result of 115 GB for 10,000 atoms, so they get as many pairs as
the others get neighbours: 12 x 10 for 120.
"""

import argparse
import csv
import gc
import sys
from math import isqrt
from pathlib import Path
from statistics import median

import torch
from dp_calc.kernels import tabulate
from dp_calc.kernels.tabulate import Domain
from tqdm import tqdm

OPERATORS = ("se_a", "se_atten", "se_t", "se_t_tebd", "se_r")
PASSES = ("forward", "backward", "double_backward")
PATHS = ("torch", "triton")
COLUMNS = (
    "operator",
    "dtype",
    "atoms",
    "slots",
    "channels",
    "pass",
    "path",
    "milliseconds",
    "peak_mib",
    "inputs_mib",
    "status",
)
MIB = 2**20
TIME_PER_ROW = 400.0  # milliseconds of measurement that are aimed at
REPEATS = (5, 50)


class Problem:
    """An operator on random inputs, and its three passes."""

    def __init__(self, operator, atoms, slots, channels, dtype):
        self.operator, self.channels = operator, channels
        three_body = operator in ("se_t", "se_t_tebd")
        lower = -8.0 if three_body else -1.0
        domain = Domain.from_range(lower, 8.0, two_sided=three_body)
        self.info = domain.info(dtype)
        options = {"dtype": dtype, "device": "cuda"}
        self.table = torch.randn(domain.rows, 6 * channels, **options)
        shape = (atoms, *(split(slots) if three_body else (slots,)))
        x = lower + (8.0 - lower) * torch.rand(shape, **options)
        self.em = torch.randn(*shape, *([] if three_body else [4]), **options)
        inputs = {
            "se_a": (x, self.em),
            "se_atten": (x, self.em, torch.randn(atoms * slots, channels, **options)),
            "se_t": (x, self.em),
        }.get(operator, (x,))
        self.inputs = tuple(tensor.requires_grad_() for tensor in inputs)
        result = (*shape, channels) if len(inputs) == 1 else self.result_shape(atoms)
        self.cotangent = torch.randn(result, **options).requires_grad_()
        self.weights = tuple(torch.randn_like(tensor) for tensor in inputs)

    def result_shape(self, atoms):
        components = () if self.operator == "se_t" else (4,)
        return (atoms, *components, self.channels)

    def forward(self, path):
        arguments = list(self.inputs)
        if self.operator == "se_t_tebd":
            arguments.append(self.em)
        arguments.append(self.channels)
        if self.operator == "se_atten":
            arguments.append(False)
        function = getattr(tabulate, self.operator)
        return function(self.table, self.info, *arguments, kernels=path)

    def backward(self, value, **options):
        return torch.autograd.grad(value, self.inputs, self.cotangent, **options)

    def double_backward(self, first, **options):
        points = (self.cotangent, *self.inputs)
        return torch.autograd.grad(first, points, self.weights, **options)

    def chain(self, path, last):
        """Everything up to the pass ``last``, once."""
        value = self.forward(path)
        if last == "forward":
            return value
        if last == "backward":
            return value, self.backward(value)
        first = self.backward(value, create_graph=True)
        return value, first, self.double_backward(first)

    def alone(self, path, name):
        """A function that runs one pass again and again on a graph made before."""
        if name == "forward":
            return lambda: self.forward(path)
        value = self.forward(path)
        if name == "backward":
            return lambda: self.backward(value, retain_graph=True)
        first = self.backward(value, create_graph=True)
        return lambda: self.double_backward(first, retain_graph=True)


def split(slots):
    """Two nearly equal factors."""
    first = next(n for n in range(isqrt(slots), 0, -1) if slots % n == 0)
    return slots // first, first


def peak_memory(function):
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = function()
    torch.cuda.synchronize()
    del result
    return (torch.cuda.max_memory_allocated() - held) / MIB


def milliseconds(function):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    result = function()
    end.record()
    torch.cuda.synchronize()
    del result
    return start.elapsed_time(end)


def median_time(function):
    for _ in range(3):
        estimate = milliseconds(function)
    few, many = REPEATS
    repeats = max(few, min(many, int(TIME_PER_ROW / estimate)))
    return median(milliseconds(function) for _ in range(repeats))


def attempt(function):
    """What a measurement gives, or why it gives nothing; a failure is a result too."""
    try:
        return {**function(), "status": "ok"}
    except torch.OutOfMemoryError:
        return {"status": "out of memory"}
    except RuntimeError as error:
        return {"status": str(error).splitlines()[0]}


def measure(problem, path, name):
    def numbers():
        peak = peak_memory(lambda: problem.chain(path, name))
        time = median_time(problem.alone(path, name))
        return {"milliseconds": f"{time:.4f}", "peak_mib": f"{peak:.1f}"}

    inputs = f"{torch.cuda.memory_allocated() / MIB:.1f}"
    row = attempt(numbers) | {"inputs_mib": inputs}
    gc.collect()
    torch.cuda.empty_cache()
    return row


def rows(options):
    combinations = [(o, n) for n in options.atoms for o in OPERATORS]
    with tqdm(total=len(combinations) * len(PATHS) * len(PASSES)) as progress:
        for operator, atoms in combinations:
            size = {
                "operator": operator,
                "dtype": options.dtype,
                "atoms": atoms,
                "slots": options.neighbors,
                "channels": options.channels,
            }
            dtype = getattr(torch, options.dtype)
            problem = Problem(operator, atoms, options.neighbors, options.channels, dtype)
            for path in PATHS:
                for name in PASSES:
                    row = {"pass": name, "path": path} | measure(problem, path, name)
                    yield size | row
                    progress.update()
            del problem


def environment(options):
    arguments = [
        Path(word).name if word == options.out else word for word in sys.argv[1:]
    ]
    import triton

    return [
        f"# GPU: {torch.cuda.get_device_name()}",
        f"# torch {torch.__version__}, CUDA {torch.version.cuda}, "
        f"triton {triton.__version__}",
        f"# python examples/benchmarks/tabulate.py {' '.join(arguments)}",
    ]


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description="Time and memory of the tabulated operators on a CUDA device."
    )
    parser.add_argument("--out", required=True, help="CSV file to write")
    parser.add_argument("--atoms", type=int, nargs="+", default=[1, 100, 10000])
    parser.add_argument("--neighbors", type=int, default=120)
    parser.add_argument("--channels", type=int, default=100)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    return parser.parse_args(arguments)


def main():
    options = parse()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA device")
    with open(options.out, "w", newline="") as file:
        file.write("\n".join(environment(options)) + "\n")
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for row in rows(options):
            table.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()
