"""``dp_calc.evaluate``: many structures give what each gives by itself."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import molecule
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from ase.neighborlist import NewPrimitiveNeighborList

import dp_calc
from dp_calc import DP, evaluate
from dp_calc.batch import Batches, ievaluate
from dp_calc.batch_edges import SmallSearch
from dp_calc.data import water_model
from dp_calc.neighbors import EdgeBuilder
from dp_calc.structure import Structure

DATA = Path(__file__).parents[1] / "data"
MODELS = ["plain.pt", "conditions.pt", "deepspin.pt", "classic/se_e2_a_options.pt",
          "classic/dpa1_concat.pt", "spin_version11.pt"]  # fmt: skip
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


def _mixture(calc, n=12, seed=0):
    """Structures of every periodicity, each with its own conditions."""
    rng = np.random.default_rng(seed)
    specs = {spec.name: spec for spec in calc.model.inputs}
    frames = []
    for i in range(n):
        m = int(rng.integers(1, 7))
        cell = np.diag(rng.uniform(4, 6, 3)) + rng.normal(scale=0.3, size=(3, 3))
        atoms = Atoms(rng.choice(calc.type_map, m), cell=cell, pbc=rng.random(3) < 0.5)
        atoms.positions = rng.random((m, 3)) @ cell * 1.5
        for name, width in (("fparam", None), ("charge_spin", 2)):
            if name in specs and (specs[name].required or i % 2):
                size = width or specs[name].width
                atoms.info[name] = rng.integers(1, 3, size).astype(float)
        if "aparam" in specs:
            atoms.arrays["aparam"] = rng.normal(size=(m, specs["aparam"].width))
        if "spin" in specs:
            atoms.arrays["spin"] = rng.normal(size=(m, 3))
        frames.append(atoms)
    return frames


def _assert_same(result, expected, tolerance):
    assert list(result) == list(expected)
    for name, value in expected.items():
        assert type(result[name]) is type(value)
        scale = max(1.0, np.abs(value).max())
        np.testing.assert_allclose(result[name], value, rtol=0, atol=tolerance * scale)
        assert np.asarray(result[name]).dtype == np.float64


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("model", MODELS)
def test_every_model_gives_what_single_evaluations_give(model, dtype):
    calc = DP(DATA / model, device="cpu", dtype=dtype)
    frames = _mixture(calc)
    results = evaluate(frames, calc, progress=False)
    assert not calc.results
    for atoms, result in zip(frames, results, strict=True):
        calc.calculate(atoms)
        _assert_same(result, calc.results, TOLERANCE[dtype])


def test_committees_have_their_spread():
    calc = DP([water_model(), water_model()], device="cpu", dtype="float64")
    frames = [molecule("H2O"), Atoms("O"), molecule("H2O", cell=[4, 5, 6], pbc=True)]
    frames[0].rattle(0.05)
    for atoms, result in zip(frames, evaluate(frames, calc, progress=False), strict=True):
        calc.calculate(atoms)
        _assert_same(result, calc.results, 1e-12)


@pytest.mark.parametrize("max_edges", [1, 40, 10**9])
def test_any_size_of_batches_gives_the_same(calc, structures, max_edges):
    frames = list(structures.values())
    results = evaluate(frames, calc, max_edges=max_edges, progress=False)
    for atoms, result in zip(frames, results, strict=True):
        calc.calculate(atoms)
        _assert_same(result, calc.results, 1e-12)


def test_a_batch_is_one_evaluation(calc, structures, pair_model):
    evaluate(list(structures.values()) * 3, calc, progress=False)
    assert pair_model.calls == 1


def test_batches_hold_what_fits(calc, structures, pair_model):
    frames = [structures["triclinic"]] * 6
    calc.calculate(frames[0])
    n_edges = calc._reader.read(frames[0]).edges.n_edges
    load = max(n_edges, 24 * len(frames[0]))  # atoms count where edges are few
    sizes = [len(batch) for batch in Batches(calc, max_edges=3 * load).run(frames)]
    assert sizes == [3, 3]
    sizes = [len(batch) for batch in Batches(calc, max_edges=3 * load - 1).run(frames)]
    assert sizes == [2, 2, 2]


def test_batches_do_not_depend_on_what_was_before(structures, calc):
    frames = list(structures.values()) * 4
    whole = list(Batches(calc, max_edges=300).run(frames))
    start = len(whole[0]) + len(whole[1])
    rest = list(Batches(calc, max_edges=300).run(frames[start:]))
    assert pickle.dumps(rest) == pickle.dumps(whole[2:])


def test_failing_structures_lose_nothing_of_the_others(calc, structures):
    good = structures["cluster"]
    bad = {
        "the structure has no atoms": Atoms(),
        "contains He": Atoms("He"),
        "has the position": Atoms("H", positions=[[np.nan, 0, 0]]),
        "cell vector is zero": Atoms("H", pbc=True),
        "Å apart": Atoms("HO", positions=[[0, 0, 0], [0, 0, 5e-4]]),
        "a periodic image of atom 0": Atoms("H", cell=[1e-4, 9, 9], pbc=True),
        "must be ase.Atoms, not 'water'": "water",
        "must be ase.Atoms, not None": None,
    }
    frames = [frame for failing in bad.values() for frame in (good, failing)]
    results = evaluate(frames, calc, progress=False)
    calc.calculate(good)
    for message, expected, failed in zip(bad, results[::2], results[1::2], strict=True):
        _assert_same(expected, calc.results, 1e-12)
        assert list(failed) == ["error"]
        assert message in failed["error"]
        assert failed["error"].startswith(("ValueError: ", "TypeError: "))
        assert "\n" not in failed["error"]


def test_a_result_that_is_not_finite_is_that_structures_alone(calc, structures):
    class Diverging(type(calc.model)):
        def forward(self, types, edges, conditions):
            energies = super().forward(types, edges, conditions)
            return torch.where(types == 2, torch.nan * energies, energies)

    calc = DP(Diverging())
    frames = [Atoms("H"), Atoms("O"), Atoms("OCu", positions=[[0, 0, 0], [0, 0, 2]])]
    *finite, nan = evaluate(frames * 2, calc, progress=False)
    assert nan["error"].startswith("FloatingPointError: the model gave a non-finite")
    assert "for atom 1 (Cu)" in nan["error"]
    assert [("error" in result) for result in finite] == [False, False, True] + [
        False
    ] * 2


def test_out_of_memory_splits_the_batch(calc, structures, pair_model, monkeypatch):
    frames = [structures["cluster"]] * 16
    evaluated, forward = [], type(pair_model).forward

    def limited(self, types, edges, conditions):
        if len(types) > 4 * len(frames[0]):
            raise torch.OutOfMemoryError("CUDA out of memory")
        evaluated.append(len(types))
        return forward(self, types, edges, conditions)

    monkeypatch.setattr(type(pair_model), "forward", limited)
    results = evaluate(frames, calc, progress=False)
    assert evaluated == [4 * len(frames[0])] * 4
    monkeypatch.undo()
    calc.calculate(frames[0])
    for result in results:
        _assert_same(result, calc.results, 1e-12)


def test_one_structure_too_large_is_told(calc, pair_model, monkeypatch):
    def full(self, types, edges, conditions):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(type(pair_model), "forward", full)
    results = evaluate([Atoms("H"), Atoms("O")], calc, progress=False)
    told = [result["error"] for result in results]
    assert all(x.startswith("OutOfMemoryError: 1 atoms with 0 edges do") for x in told)
    assert len(told) == 2


def test_generators_are_read_as_batches_need_them(calc, structures, monkeypatch):
    monkeypatch.setattr("dp_calc.batch_reading._WINDOW", 1)
    read = []

    def frames():
        for number in range(20):
            read.append(number)
            yield structures["triclinic"]

    results = ievaluate(frames(), calc, max_edges=1)
    assert not read
    next(results)
    assert len(read) == 2


def test_one_object_given_again_and_again_counts_as_it_was(calc):
    atoms = Atoms("HO", positions=[[0, 0, 0], [0, 0, 1.5]], cell=[4, 4, 4], pbc=True)
    copies = []

    def frames():
        for stretch in (1.0, 1.1, 1.2):
            atoms.set_cell([4 * stretch] * 3, scale_atoms=True)
            copies.append(atoms.copy())
            yield atoms

    for result, copy in zip(
        evaluate(frames(), calc, progress=False), copies, strict=True
    ):
        calc.calculate(copy)
        _assert_same(result, calc.results, 1e-12)


def test_an_iterable_that_raises_is_heard_after_its_results(calc):
    def frames():
        yield Atoms("H")
        yield Atoms("O")
        raise RuntimeError("the disk is gone")

    results = ievaluate(frames(), calc)
    assert [next(results)["energy"] for _ in range(2)] == [-1.25, 0.5]
    with pytest.raises(RuntimeError, match="the disk is gone"):
        next(results)
    with pytest.raises(RuntimeError, match="the disk is gone"):
        evaluate(frames(), calc, progress=False)


def test_nothing_of_the_callers_changes(calc, structures):
    atoms = structures["slab"]
    atoms.set_constraint(FixAtoms([0]))
    atoms.info.update(strange=object, odd=[{1}, None])
    atoms.calc = SinglePointCalculator(atoms, energy=5.0)
    before = atoms.calc, dict(atoms.calc.results), atoms.copy()
    calc.calculate(structures["cluster"])
    kept, frames = calc.results, [atoms, atoms]
    grad, state = torch.is_grad_enabled(), torch.random.get_rng_state()
    one, other = evaluate(frames, calc, progress=False)
    assert frames == [atoms, atoms]
    assert (atoms.calc, atoms.calc.results) == before[:2]
    assert atoms == before[2]
    assert atoms.info == before[2].info
    assert calc.results is kept
    assert calc.atoms == structures["cluster"]
    assert torch.is_grad_enabled() == grad
    assert torch.equal(torch.random.get_rng_state(), state)
    assert np.abs(one["forces"][0]).max() > 1e-3  # constraints do not matter
    one["forces"][:] = 0
    assert other["forces"].any()
    assert one["forces"].base is None or one["forces"].base.nbytes < 10_000


def test_modes_of_the_caller_do_not_matter(calc, structures):
    frames = list(structures.values())
    expected = evaluate(frames, calc, progress=False)
    with torch.inference_mode():
        assert pickle.dumps(evaluate(frames, calc, progress=False)) == pickle.dumps(
            expected
        )


def test_properties_say_what_is_given(calc, structures):
    frames = structures["triclinic"], structures["cluster"]
    crystal, cluster = evaluate(
        frames, calc, properties=["stresses", "energy"], progress=False
    )
    assert list(crystal) == ["stresses", "energy"]
    assert list(cluster) == ["energy"]
    expected = calc.get_property("stresses", frames[0])
    np.testing.assert_allclose(crystal["stresses"], expected, rtol=1e-12)
    (only,) = evaluate(frames[:1], calc, properties="energy", progress=False)
    assert list(only) == ["energy"]


@pytest.mark.parametrize(
    ("structures", "options", "error", "message"),
    [
        (Atoms("H"), {}, TypeError, "put the one you have into a list"),
        ("in.xyz", {}, TypeError, r'ase.io.iread\("in.xyz"\)'),
        (5, {}, TypeError, "must be an iterable of ase.Atoms, not a int"),
        ([], {"properties": ["dipole"]}, ValueError, "not 'dipole'"),
        ([], {"properties": []}, ValueError, "not none"),
        ([], {"properties": 3}, TypeError, "sequence of names"),
        ([], {"properties": [["energy"]]}, ValueError, r"not \['energy'\]"),
        ([], {"properties": ["magnetic_forces"]}, ValueError, "'magnetic_forces'"),
        ([], {"max_edges": 0}, ValueError, "positive whole number, not 0"),
        ([], {"max_edges": 1.5}, ValueError, "positive whole number, not 1.5"),
        ([], {"max_edges": True}, ValueError, "positive whole number, not True"),
    ],
)
def test_wrong_arguments_get_one_sentence(calc, structures, options, error, message):
    with pytest.raises(error, match=message):
        evaluate(structures, calc, progress=False, **options)
    with pytest.raises(error, match=message):
        ievaluate(structures, calc, **options)


def test_no_structures_give_no_results(calc):
    assert evaluate([], calc, progress=False) == []
    assert evaluate(iter(()), calc, progress=False) == []


def test_models_and_files_serve_as_well_as_calculators(pair_model, capsys):
    assert evaluate([Atoms("H")], pair_model)[0]["energy"] == -1.25
    assert "1/1" in capsys.readouterr().err
    model = DATA / "plain.pt"
    (result,) = evaluate([Atoms("H")], model, progress=False)
    (same,) = evaluate([Atoms("H")], dp_calc.load_model(model), progress=False)
    assert result["energy"] == same["energy"]
    assert capsys.readouterr().err == ""


def test_a_search_of_the_callers_is_used(pair_model, structures):
    atoms = structures["triclinic"]
    own = NewPrimitiveNeighborList([2.5] * len(atoms), skin=0, bothways=True)
    calc = DP(pair_model, neighbor_list=own)
    good, other = evaluate([atoms, Atoms("H")], calc, progress=False)
    assert own.nupdates == 1
    _assert_same(good, evaluate([atoms], pair_model, progress=False)[0], 1e-12)
    assert "made for 5 atoms" in other["error"]


@pytest.mark.parametrize("rcut", [1.3, 3.0, 5.0, 9.0])
def test_the_search_in_many_finds_what_single_ones_find(structures, rcut):
    types = {"H": 0, "O": 1, "Cu": 2}
    cpu = torch.device("cpu")
    rng = np.random.default_rng(3)
    frames = [structures[name].copy() for name in structures for _ in range(3)]
    for atoms in frames:
        atoms.positions += rng.normal(scale=0.1, size=(len(atoms), 3))
        atoms.positions += rng.integers(-4, 5, (len(atoms), 3)) @ (
            atoms.cell * atoms.pbc[:, None]
        )
    checked = [Structure.from_atoms(atoms, types) for atoms in frames]
    search, single = SmallSearch(rcut, 1e-3, cpu), EdgeBuilder(rcut, 1e-3, cpu)
    assert all(search.candidates(structure) for structure in checked)
    found = search.find(checked)
    assert sum(len(src) for src, *_ in found) > 0
    for structure, (src, dst, vec) in zip(checked, found, strict=True):
        edges = single.build(structure)
        assert torch.equal(edges.src, src)
        assert torch.equal(edges.dst, dst)
        torch.testing.assert_close(edges.vec, vec, rtol=0, atol=1e-13)


def test_large_structures_are_left_to_the_search_by_cells():
    structure = Structure.from_atoms(
        Atoms("H300", positions=np.arange(900).reshape(300, 3)), {"H": 0}
    )
    search = SmallSearch(5.0, 1e-3, torch.device("cpu"))
    assert search.candidates(structure) is None
    tiny = Structure.from_atoms(Atoms("H", cell=[1e-2] * 3, pbc=True), {"H": 0})
    assert search.candidates(tiny) is None
