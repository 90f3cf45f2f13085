"""Processes: a fork is refused before it hangs, spawned ones work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ase import Atoms

from dp_calc import DP, copies, processes

TINY = Path(__file__).parents[1] / "data" / "zero_block.pt"

PROGRAM = """
import multiprocessing, sys
import numpy as np
import torch
from ase import Atoms
from dp_calc import DP

model, device, method = sys.argv[1:]

def water(_=0):
    return Atoms("OH2", [[0, 0, 0], [0.95, 0, 0], [-0.25, 0.92, 0]])

def energy_of(atoms):
    return atoms.get_potential_energy()

def moved_energy_of(atoms):
    atoms.positions *= 1.01
    return atoms.get_potential_energy()

def energy_of_new(_):
    atoms = water()
    atoms.calc = DP(model, device=device)
    return atoms.get_potential_energy()

def energy_of_inherited(_):
    calc.reset()
    return calc.get_property("energy", water())

def with_one_thread(_):
    torch.set_num_threads(1)
    return energy_of_inherited(_)

def outcome(function, argument):
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        try:
            return pool.map_async(function, [argument]).get(60)[0]
        except Exception as error:
            return f"{type(error).__name__}: {error}"

if __name__ == "__main__":
    torch.set_num_threads(2)
    calc = DP(model, device=device)
    atoms = water()
    atoms.calc = calc
    print("here |", atoms.get_potential_energy())
    print("kept |", outcome(energy_of, atoms))
    print("moved |", outcome(moved_energy_of, atoms))
    print("new |", outcome(energy_of_new, None))
    if method == "fork":
        print("inherited |", outcome(energy_of_inherited, None))
        print("one thread |", outcome(with_one_thread, None))
    print("here again |", moved_energy_of(atoms))
"""


def outcomes(tmp_path, device, method):
    """What a program printed that evaluates in other processes, by name."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    command = [sys.executable, path, TINY, device, method]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return dict(line.split(" | ") for line in run.stdout.splitlines())


def test_spawned_processes_work(tmp_path):
    told = outcomes(tmp_path, "cpu", "spawn")
    here, moved = float(told["here"]), float(told["here again"])
    assert here != moved
    assert float(told["kept"]) == here
    assert float(told["new"]) == pytest.approx(here, rel=1e-6)
    assert float(told["moved"]) == pytest.approx(moved, rel=1e-6)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork")
def test_forked_processes_refuse_instead_of_hanging(tmp_path):
    told = outcomes(tmp_path, "cpu", "fork")
    assert told["kept"] == told["here"]
    for name in ("moved", "new", "inherited"):
        assert told[name].startswith(
            "RuntimeError: this process was forked after a model"
        )
        assert 'get_context("spawn")' in told[name]
    assert float(told["one thread"]) == pytest.approx(float(told["here"]), rel=1e-6)
    assert float(told["here again"]) != float(told["here"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_cuda_in_other_processes(method, tmp_path):
    told = outcomes(tmp_path, "cuda", method)
    assert told["kept"] == told["here"]
    for name in ("moved", "new", "inherited", "one thread"):
        if method == "fork":
            assert "RuntimeError" in told[name]
            assert "spawn" in told[name]
        elif name in told:
            assert abs(float(told[name]) - float(told["here"])) < 1


@pytest.fixture
def as_if_forked(monkeypatch):
    """This process, seen as the fork of one that had used CUDA."""
    other = os.getpid() + 1
    monkeypatch.setattr(processes, "_used_by", {"cpu": other, "cuda": other})


def test_a_fork_after_cuda_is_refused_whatever_the_threads(as_if_forked, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    processes.refuse_fork(torch.device("cpu"))
    with pytest.raises(RuntimeError, match=r'after CUDA had been started.*"spawn"'):
        processes.refuse_fork(torch.device("cuda"))


def test_a_calculator_of_cuda_can_be_read_in_a_fork(as_if_forked):
    """An error would end a worker of a pool that reads its task, and hang the pool."""
    assert copies._place("cuda:0") == torch.device("cpu")


def test_every_way_to_evaluate_refuses(as_if_forked, pair_model, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    calc, atoms = DP(pair_model), Atoms("H")
    calls = (
        lambda: calc.calculate(atoms),
        lambda: calc.get_property("energy", atoms),
        lambda: calc.get_hessian(atoms),
        lambda: calc.get_descriptors(atoms),
        lambda: calc.get_last_hidden(atoms),
        lambda: DP(TINY),
    )
    for call in calls:
        with pytest.raises(RuntimeError, match=r"set_num_threads\(1\)"):
            call()
    assert pair_model.calls == 0
