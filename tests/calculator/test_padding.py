"""What compiled code is given: padding adds nothing, pieces are checked at first use."""

import logging
from dataclasses import fields

import numpy as np
import pytest
import torch
from ase.build import bulk, molecule
from ase.io import read
from dp_calc.models import make_cohorts
from dp_calc.models.pieces import EagerRunner
from reference import DATA

from dp_calc import DP
from dp_calc.compile_cache import CompileCache, cache_folder, clear_cache
from dp_calc.compiled_model import CompiledModel
from dp_calc.padding import pad_system

MODEL = DATA / "neo_narrow.pt"


def on_gpu(test):
    """A test that needs a CUDA device."""
    skip = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    return pytest.mark.gpu(skip(test))


def structures():
    """With many edges, with few, without any, and a single atom."""
    crystal = bulk("C", "diamond", a=3.6, cubic=True)
    crystal.rattle(0.05, seed=1)
    lone = molecule("CH4")
    lone.positions *= 30
    return [crystal, molecule("CH4"), lone, lone[:1]]


def system_of(calc, atoms):
    return calc._reader.read(atoms)


@pytest.fixture(scope="module")
def calc():
    made = DP(MODEL, device="cpu", dtype="float64")
    known = made.type_map
    if "C" not in known or "H" not in known:
        made = DP(MODEL, device="cpu", dtype="float64", type_dict={"C": 0, "H": 1})
    return made


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("few_sizes", [True, False])
def test_padding_adds_exactly_nothing(calc, number, few_sizes):
    """An eager evaluation of the padded system equals that of the system itself."""
    atoms = structures()[number]
    system = system_of(calc, atoms)
    model = CompiledModel(calc.model, calc.settings)
    model.runner, model.slots, model._chunks = EagerRunner(), 256, (4, 4)
    if few_sizes:
        model.graphs = lambda system, evaluate: evaluate(system)
    native = calc._engine.evaluate(system.types, system.edges, system.conditions)
    padded = model.evaluate(system.types, system.edges, system.conditions)
    for field in fields(native):
        one, other = getattr(native, field.name), getattr(padded, field.name)
        if one is not None:
            torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-12)


def test_what_the_padding_holds_does_not_matter(calc):
    system = system_of(calc, structures()[0])
    cohorts = make_cohorts(system.edges, 256, torch.float64, fixed=True)
    results = []
    for far in (2 * calc.rcut, 1e3):
        model = CompiledModel(calc.model, calc.settings)
        model.runner, model.slots, model._chunks, model._far = (
            EagerRunner(),
            256,
            (4, 4),
            far,
        )
        padded = pad_system(system.types, system.edges, cohorts, {}, 4, far, True)
        results.append(model._evaluate(padded))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one[: len(system.types)], other[: len(system.types)])


def test_sizes_are_few(calc):
    """Neighbouring numbers of atoms and edges give the same sizes."""
    sizes = set()
    for n in range(40, 60):
        atoms = bulk("C", "diamond", a=3.6) * (n, 1, 1)
        edges = system_of(calc, atoms).edges
        cohorts = make_cohorts(edges, 8192, torch.float64, fixed=True)
        types = torch.zeros(edges.n_atoms, dtype=torch.long)
        sizes.add(pad_system(types, edges, cohorts, {}, 128, 12.0, True).sizes)
    assert len(sizes) <= 3


def fake_compile(self, code, module, inputs):
    """Compiled code that is the traced code."""
    return lambda arguments: module(*arguments)


@pytest.fixture
def uncompiled(monkeypatch, tmp_path):
    monkeypatch.setenv("DP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(CompileCache, "compile", fake_compile)


def test_traced_pieces_serve_all_sizes(uncompiled, caplog):
    """No piece is traced again for other atoms, edges or elements; one line is logged."""
    plain, traced = DP(MODEL, device="cpu"), DP(MODEL, device="cpu", compile=True)
    symbols = plain.type_map
    runner = traced._engine.compiled.runner
    counts = []
    with caplog.at_level(logging.INFO, "dp_calc"):
        for n in (1, 2, 5, 31, 33):
            atoms = bulk(symbols[0], "fcc", a=3.4) * (n, 1, 1)
            atoms.symbols[n // 2] = symbols[-1]
            atoms.rattle(0.05, seed=n)
            for calc in (plain, traced):
                calc.calculate(atoms)
            counts.append(runner.n_compiled)
            forces = plain.results["forces"]
            np.testing.assert_allclose(
                traced.results["forces"],
                forces,
                rtol=0,
                atol=1e-5 * max(1, np.abs(forces).max()),
            )
    assert counts[0] > 0
    assert len(set(counts)) == 1
    assert len([r for r in caplog.records if "compiling" in r.message]) == 1


def test_wrong_compiled_code_is_found_out_and_not_used(monkeypatch, tmp_path):
    def wrong(self, code, module, inputs):
        return lambda arguments: [x * (1 + 1e-3) for x in module(*arguments)]

    monkeypatch.setenv("DP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(CompileCache, "compile", wrong)
    atoms = bulk("Cu", "fcc", a=3.6)
    plain = DP(MODEL, device="cpu")
    atoms.symbols[:] = plain.type_map[0]
    calc = DP(MODEL, device="cpu", compile=True)
    with pytest.warns(UserWarning, match="compile=False avoids this"):
        calc.calculate(atoms)
    plain.calculate(atoms)
    assert calc.results["energy"] == pytest.approx(plain.results["energy"], abs=1e-5)


def test_no_compiler_is_a_warning_with_a_way_out(monkeypatch, tmp_path):
    def broken(self, code, module, inputs):
        raise RuntimeError("g++ not found")

    monkeypatch.setenv("DP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(CompileCache, "compile", broken)
    calc = DP(MODEL, device="cpu", compile=True)
    atoms = bulk("Cu", "fcc", a=3.6)
    atoms.symbols[:] = calc.type_map[0]
    with pytest.warns(UserWarning, match=r"g\+\+ not found.*compile=False"):
        calc.calculate(atoms)
    assert np.isfinite(calc.results["energy"])


def test_clearing_the_cache_leaves_other_files(monkeypatch, tmp_path):
    monkeypatch.setenv("DP_CACHE_DIR", str(tmp_path))
    (tmp_path / "pieces").mkdir()
    (tmp_path / "pieces" / "x.pt").touch()
    (tmp_path / "mine").touch()
    assert cache_folder() == tmp_path
    clear_cache()
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


@on_gpu
def test_recorded_evaluations_equal_the_first_to_the_last_bit():
    """In any order of calls, also with another structure in between."""
    water = read("dp_calc/data/water64.extxyz")
    calc = DP("dp_calc/data/water_mini.pt", device="cuda", backward="stream")
    other = water[:30]
    seen = {}
    for number in (0, 1, 0, 0, 1, 1, 0):
        atoms = (water, other)[number]
        calc.calculate(atoms)
        forces = calc.results["forces"]
        assert np.array_equal(seen.setdefault(number, forces), forces)
    compiled = calc._engine.compiled
    assert compiled.graphs.n_recorded == 2
    plain = DP("dp_calc/data/water_mini.pt", device="cuda", compile=False)
    plain.calculate(water)
    np.testing.assert_allclose(
        seen[0], plain.results["forces"], rtol=0, atol=2e-5 * np.abs(seen[0]).max()
    )


@on_gpu
def test_dynamics_compile_nothing_and_memory_stays():
    water = read("dp_calc/data/water64.extxyz")
    calc = DP("dp_calc/data/water_mini.pt", device="cuda", backward="stream")
    calc.warmup(water)
    runner = calc._engine.compiled.runner
    before = runner.n_compiled + runner.n_loaded
    rng = np.random.default_rng(0)
    peaks = []
    for step in range(200):
        water.positions += rng.normal(0, 0.01, water.positions.shape)
        calc.calculate(water)
        if step % 50 == 49:
            peaks.append(torch.cuda.max_memory_allocated())
    assert runner.n_compiled + runner.n_loaded == before
    assert peaks[-1] <= 1.02 * peaks[0]
