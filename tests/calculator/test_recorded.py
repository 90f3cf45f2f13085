"""Evaluations recorded whole: padding adds nothing, replays give the same bits."""

import warnings

import numpy as np
import pytest
import torch
from ase.build import bulk, molecule
from dp_calc.kernels.launch import launch
from dp_calc.models import EdgeList
from reference import DATA
from torch import Tensor

from dp_calc import DP, backward
from dp_calc.data import water_model, water_structure
from dp_calc.evaluation import evaluate_model
from dp_calc.graphs import RecordingError, map_tensors
from dp_calc.recorded_model import RecordedModel

MODEL = DATA / "neo_narrow.pt"
FIELDS = ("energies", "forces", "atomic_virials")


def structures():
    """With many edges, with few, without any, and a single atom."""
    crystal = bulk("C", "diamond", a=3.6, cubic=True) * (2, 2, 1)
    crystal.rattle(0.05, seed=1)
    lone = molecule("CH4")
    lone.positions *= 30
    return [crystal, molecule("CH4"), lone, lone[:1]]


@pytest.fixture(scope="module")
def calc():
    return DP(MODEL, device="cpu", dtype="float64", type_dict={"C": 0, "H": 1})


def unrecorded(model):
    """The evaluation that would be recorded, as it is."""
    recorded = RecordedModel(model)
    recorded.graphs = lambda system, evaluate: evaluate(system)
    return recorded


@pytest.mark.parametrize("number", range(4))
def test_padding_adds_nothing(calc, number):
    system = calc._reader.read(structures()[number])
    inputs = (system.types, system.edges, system.conditions)
    expected = evaluate_model(calc.model, *inputs)
    result = unrecorded(calc.model).evaluate(*inputs)
    for name in FIELDS:
        difference = (getattr(result, name) - getattr(expected, name)).abs().max()
        assert difference <= 1e-12 * max(1, getattr(expected, name).abs().max()), name


def test_structures_of_almost_one_size_have_one(calc):
    """Atoms that move in and out of the cutoff make no new recording each time."""
    crystal = structures()[0]
    recorded = RecordedModel(calc.model)
    sizes = set()
    for seed in range(4):
        crystal.rattle(0.05, seed=seed)
        system = calc._reader.read(crystal)
        padded = recorded._padded(system.types, system.edges, system.conditions)
        sizes.add(padded.sizes)
    assert len(sizes) == 1


def test_what_is_recorded_reads_memory_of_its_own(calc):
    """All of it is copied, and all of it takes over the values of another structure."""
    recorded, systems = RecordedModel(calc.model), []
    for number in (1, 2):
        read = calc._reader.read(structures()[number])
        systems.append(recorded._padded(read.types, read.edges, read.conditions))
    first, second = systems
    own = map_tensors(torch.clone, first)
    expected = recorded._evaluate(map_tensors(torch.clone, second))
    map_tensors(Tensor.copy_, own, second)
    map_tensors(Tensor.zero_, second)
    results = recorded._evaluate(own)
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


class Kernel:
    """Notes what is done with it."""

    __name__ = "kernel"

    def __init__(self):
        self.done = []

    def warmup(self, *arguments, grid):
        self.done.append("compiled")

    def __getitem__(self, grid):
        return lambda: self.done.append("launched")


def test_kernels_are_compiled_before_the_first_evaluation(calc):
    """Those of all that come later, even if the first has no edges."""
    kernel, recorded = Kernel(), unrecorded(calc.model)
    evaluate = recorded._evaluate

    def launching(system):
        if len(system.tiles.tile_row) and len(system.edges.vec):
            launch(kernel, (1,))
        return evaluate(system)

    recorded._evaluate = launching
    _, methane, lone, _ = map(calc._reader.read, structures())
    assert not lone.edges.n_edges
    for system in (lone, methane, methane):
        recorded.evaluate(system.types, system.edges, system.conditions)
    assert kernel.done == ["compiled", "launched", "launched", "launched"]


def edges_of(n_edges):
    none = torch.zeros(n_edges, dtype=torch.int64)
    return EdgeList.from_sorted(none, none, torch.ones(n_edges, 3).double(), 1)


@pytest.mark.parametrize(
    ("asked", "n_edges", "expected"),
    [
        ("auto", 10, ("native", "recorded")),
        ("auto", 100, ("stream", "compiled")),
        ("native", 100, ("native", "recorded")),
        ("cohort", 100, ("cohort", "recorded")),
    ],
)
def test_what_fits_is_kept(calc, monkeypatch, asked, n_edges, expected):
    class Compiled:
        def holds(self, edges):
            return True

    monkeypatch.setattr(backward, "_memory", lambda device: 500 * 70_000)
    monkeypatch.setattr(type(calc.model), "bytes_per_edge", 70_000)
    settings = type(calc.settings)(backward=asked, kernels="triton")
    chosen = backward.choose_backward(
        calc.model, settings, edges_of(n_edges), Compiled(), RecordedModel(calc.model)
    )
    assert (chosen.name, chosen.by) == expected


def test_what_cannot_be_recorded_goes_on_without(calc, monkeypatch):
    def broken(system, evaluate):
        raise RecordingError("evaluations of this model cannot be recorded here")

    atoms = structures()[0]
    expected = calc.get_property("energy", atoms)
    engine = calc._engine
    recorded = RecordedModel(calc.model)
    recorded.graphs = broken
    monkeypatch.setattr(engine, "recorded", recorded)
    monkeypatch.setattr(backward, "_memory", lambda device: 1e15)
    calc.reset()
    with pytest.warns(UserWarning, match="cannot be recorded here; they go on without"):
        result = calc.get_property("energy", atoms)
    assert result == expected
    assert engine.recorded is None


@pytest.mark.gpu
@pytest.mark.parametrize("backward_of", ["auto", "cohort"])
def test_replays_have_the_bits_of_the_first_evaluation(cuda, backward_of):
    from ase.io import read

    kernels = "triton" if backward_of == "cohort" else "auto"
    calc = DP(water_model(), device=cuda, backward=backward_of, kernels=kernels)
    atoms = read(water_structure())
    atoms.calc = calc
    moved = atoms.copy()
    moved.rattle(0.05, seed=2)
    moved.calc = calc
    first = [x.get_forces().copy() for x in (atoms, moved)]
    for _ in range(3):
        for x, expected in zip((atoms, moved), first, strict=True):
            calc.reset()
            assert np.array_equal(x.get_forces(), expected)
    assert calc._engine.backward.by == "recorded"
    assert calc._engine.recorded.graphs.n_recorded >= 1
    exact = DP(water_model(), device=cuda, dtype="float64")
    right = exact.get_property("forces", atoms)
    assert np.abs(first[0] - right).max() < 1e-5


@pytest.mark.gpu
def test_nothing_is_compiled_for_what_fits(cuda):
    from ase.io import read

    atoms = read(water_structure())
    atoms.calc = DP(water_model(), device=cuda)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        atoms.get_potential_energy()
    assert atoms.calc._engine.compiled.runner.n_compiled == 0
