"""Section G: speed, compilation, memory."""

import resource
import sys
import time

import numpy as np
import pytest
import torch
from ase.build import bulk, molecule
from reports import COPPER, TINY, evaluate, evaluations, needs_cuda
from torch import nn

from dp_calc import DP

STAGES = ["checks", "transfer", "neighbor list", "model", "post-processing"]


def resident_bytes():
    """Memory that the process holds now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def most_resident_bytes():
    """The most memory that the process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


needs_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="needs Linux: reads /proc"
)


def breathe(calc, crystal, note):
    """1000 steps of a crystal whose volume swings by 5 % both ways; noted in hundreds."""
    cell, random = crystal.cell.array.copy(), np.random.default_rng(0)
    crystal.calc = calc
    peaks, n_edges = [], evaluations(calc)
    for step in range(1000):
        volume = 1 + 0.05 * np.sin(2 * np.pi * step / 150)
        crystal.set_cell(cell * volume ** (1 / 3), scale_atoms=True)
        crystal.rattle(0.005, rng=random)
        crystal.get_forces()
        if step % 100 == 99:
            peaks.append(note())
    assert len(n_edges) == 1000
    assert len(set(n_edges)) > 1
    return peaks


@pytest.mark.case("G4")
@needs_linux
def test_memory_stays_flat_while_the_volume_swings():
    peaks = breathe(DP(TINY), bulk("Cu", a=3.72), resident_bytes)
    assert max(peaks[-5:]) < 1.02 * peaks[3]


@pytest.mark.case("G4")
@pytest.mark.gpu
@needs_cuda
def test_memory_of_the_gpu_stays_flat_while_the_volume_swings():
    def peak():
        most = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return most

    peaks = breathe(DP(COPPER, device="cuda"), bulk("Cu", a=3.72) * (3, 3, 3), peak)
    assert max(peaks[-5:]) < 1.1 * peaks[3]


@pytest.mark.case("G4")
@pytest.mark.parametrize("backward", ["native", "stream"])
def test_running_out_of_memory_is_told_with_numbers_and_a_remedy(backward):
    calc, atoms = DP(COPPER, backward=backward, device="cpu"), bulk("Cu") * (2, 2, 2)
    n_edges = evaluations(calc)
    asks = calc.model.register_forward_pre_hook(lambda *_: torch.empty(2**58))
    with pytest.raises(torch.OutOfMemoryError) as caught:
        evaluate(atoms, calc)
    message = str(caught.value)
    assert message.startswith(f"8 atoms with {n_edges[0]} edges do not fit into the ")
    remedy = {"native": "bytes per edge", "stream": "smaller cohort_edges"}[backward]
    assert remedy in message
    assert "\n" not in message
    assert not calc.results
    asks.remove()
    assert np.isfinite(evaluate(atoms, calc)[0])


def _far_away():
    atoms = molecule("C6H6")
    atoms.positions += 5000
    return atoms


def _far_apart():
    atoms = molecule("C6H6")
    other = atoms.copy()
    other.positions += [5000, -3000, 4000]
    return atoms + other


@pytest.mark.case("G5")
@pytest.mark.parametrize(
    ("make", "n_molecules"), [(_far_away, 1), (_far_apart, 2)], ids=["one", "two"]
)
def test_empty_space_costs_neither_memory_nor_time(make, n_molecules):
    calc, molecules = DP(COPPER), make()
    energy = evaluate(molecule("C6H6"), calc)[0]
    before, start = most_resident_bytes(), time.perf_counter()
    result = evaluate(molecules, calc)[0]
    assert time.perf_counter() - start < 5
    assert most_resident_bytes() - before < 100e6
    assert result == pytest.approx(n_molecules * energy, rel=0, abs=1e-5 * len(molecules))


class Springs(nn.Module):
    """A pair potential that costs next to nothing, so that all the rest is seen."""

    type_map = ("Cu",)
    inputs = ()
    rcut = 4.0
    shortest_distance = 1e-3
    dtype = torch.float64
    device = torch.device("cpu")

    def forward(self, types, edges, conditions):
        return edges.sum_at_dst((edges.vec.square().sum(1) - 16).square()) / 1000


@pytest.mark.case("G6")
def test_neighbours_take_time_in_proportion_to_the_atoms():
    calc, sizes, seconds = DP(Springs(), skin=0.0), (8, 16, 24), []
    for n in sizes:
        atoms = bulk("Cu") * (n, n, n)
        times = []
        for seed in range(3):
            atoms.rattle(0.01, seed=seed)
            evaluate(atoms, calc)
            times.append(calc.timings["neighbor list"])
        seconds.append(min(times))
    exponent = np.polyfit(np.log(np.array(sizes) ** 3), np.log(seconds), 1)[0]
    assert exponent < 1.25  # all pairs would give 2


@pytest.mark.case("G9")
@pytest.mark.parametrize("n", [6, pytest.param(40, marks=[pytest.mark.gpu, needs_cuda])])
def test_the_time_of_a_step_is_told_stage_by_stage(n):
    calc, atoms = DP(TINY), bulk("Cu") * (n, n, n)
    atoms.calc = calc
    walls, told = [], []
    for seed in range(5):
        atoms.rattle(0.01, seed=seed)
        start = time.perf_counter()
        calc.calculate(atoms)
        walls.append(time.perf_counter() - start)
        told.append(dict(calc.timings))
    for wall, stages in zip(walls, told, strict=True):
        assert list(stages) == STAGES
        assert min(stages.values()) >= 0
        assert sum(stages.values()) <= wall
    # The stages are all there is but for copies of the structure.
    assert min(w - sum(t.values()) for w, t in zip(walls, told, strict=True)) < 0.1 * min(
        walls
    )
    atoms.get_forces()
    assert calc.timings == told[-1]
