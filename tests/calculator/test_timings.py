"""The stages of an evaluation are timed, and together they are all of it."""

import time

import pytest
import torch
from ase import Atoms

from dp_calc.timings import Stopwatch

STAGES = ["checks", "transfer", "neighbor list", "model", "post-processing"]


def test_stages_of_an_evaluation(calc, structures):
    assert calc.timings == {}
    start = time.perf_counter()
    calc.calculate(structures["slab"])
    total = time.perf_counter() - start
    assert list(calc.timings) == STAGES
    assert all(seconds >= 0 for seconds in calc.timings.values())
    assert 0.5 * total < sum(calc.timings.values()) <= total


def test_slow_stages_are_told_apart(calc, structures, monkeypatch):
    forward, find = calc.model.forward, calc._reader._edges._find

    def slow(function, seconds):
        def run(*args, **keywords):
            time.sleep(seconds)
            return function(*args, **keywords)

        return run

    monkeypatch.setattr(calc.model, "forward", slow(forward, 0.2))
    monkeypatch.setattr(calc._reader._edges, "_find", slow(find, 0.1))
    calc.calculate(structures["slab"])
    assert calc.timings["model"] >= 0.2
    assert 0.1 <= calc.timings["neighbor list"] < 0.2
    calc.reset()
    calc.calculate(structures["slab"])  # without a search
    assert calc.timings["neighbor list"] < 0.1


def test_each_evaluation_has_its_own(calc, structures):
    atoms = structures["slab"]
    atoms.calc = calc
    atoms.get_forces()
    first = calc.timings
    atoms.get_potential_energy()  # known already
    assert calc.timings is first
    atoms.positions[0, 0] += 0.01
    atoms.get_forces()
    assert calc.timings is not first


def test_none_of_an_evaluation_that_failed(calc, structures):
    calc.calculate(structures["slab"])
    with pytest.raises(ValueError, match="apart"):
        calc.calculate(Atoms("O2"))
    assert calc.timings == {}


@pytest.mark.gpu
def test_stages_on_the_device():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    device = torch.device("cuda")
    work = torch.rand(4096, 4096, device=device)
    work @ work
    torch.cuda.synchronize()
    watch, start = Stopwatch(device), time.perf_counter()
    for _ in range(20):
        work @ work
    watch.lap("product")
    launched = time.perf_counter() - start
    time.sleep(0.05)
    watch.lap("pause")
    seconds = watch.seconds()
    total = time.perf_counter() - start
    assert seconds["product"] > launched
    assert 0.8 * total < sum(seconds.values()) < 1.2 * total
