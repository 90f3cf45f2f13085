"""Committees: means and standard deviations over several models on one neighbour list."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from ase.calculators.calculator import PropertyNotImplementedError
from ase.db import connect
from ase.io import read, write
from checkpoints import Content, multi_task
from dp_calc.models import InputSpec
from dp_calc.models.classic.compress import is_compressed

from dp_calc import DP, evaluate, load_model
from dp_calc.neighbors import EdgeBuilder

DATA = Path(__file__).parents[1] / "data"
FILES = [
    DATA / "plain.pt",
    DATA / "zero_block.pt",
    DATA / "nano_narrow.pt",
]  # 4.6, 4.6, 6 Å
CLASSIC = [DATA / "classic" / name for name in ("se_e2_a.pt", "se_e2_a_twoside.pt")]


def salt(seed=0):
    atoms = bulk("NaCl", "rocksalt", a=5.6) * (2, 1, 1)
    atoms.rattle(0.1, seed=seed)
    return atoms


def molecule(seed=0):
    atoms = Atoms("OH2", [[0, 0, 0], [0.95, 0, 0], [-0.25, 0.92, 0]])
    atoms.rattle(0.05, seed=seed)
    return atoms


def results(calc, atoms):
    if atoms.pbc.any():
        calc.get_property("stresses", atoms)
    calc.get_property("energy", atoms)
    return calc.results


@pytest.fixture(scope="module")
def committee():
    return DP(FILES, device="cpu", dtype="float64")


@pytest.fixture(scope="module")
def singles():
    return [DP(file, device="cpu", dtype="float64") for file in FILES]


@pytest.mark.parametrize("atoms", [salt(), molecule(), Atoms("Cu")], ids=str)
def test_means_and_standard_deviations(atoms, committee, singles):
    """Cutoffs are 4.6, 4.6 and 6 Å: each model must see the edges it sees by itself."""
    found = results(committee, atoms)
    each = [results(single, atoms) for single in singles]
    assert found.keys() == each[0].keys() | {"energy_std", "forces_std"}
    for name in each[0]:
        mean = np.mean([x[name] for x in each], axis=0)
        np.testing.assert_allclose(found[name], mean, rtol=1e-12, atol=1e-12)
    energy_std = np.std([x["energy"] for x in each])
    np.testing.assert_allclose(found["energy_std"], energy_std, rtol=1e-12)
    forces_std = np.std([x["forces"] for x in each], axis=0)
    np.testing.assert_allclose(found["forces_std"], forces_std, rtol=1e-9, atol=1e-13)
    if len(atoms) > 1:
        assert found["forces_std"].max() > 1e-3


def test_types_of_the_results(committee):
    atoms = salt()
    for name in committee.implemented_properties:
        value = committee.get_property(name, atoms)
        if name in ("energy", "free_energy", "energy_std"):
            assert type(value) is float
        else:
            assert value.dtype == np.float64
            assert value.flags.owndata
    assert committee.get_property("forces_std", atoms).shape == (4, 3)


def test_forces_are_those_of_the_mean_energy(committee):
    atoms, step = salt(), 1e-4
    atoms.calc = committee
    forces = atoms.get_forces()
    energies = []
    for sign in (1, -1):
        moved = atoms.copy()
        moved.positions[1, 2] += sign * step
        energies.append(committee.get_property("energy", moved))
    slope = (energies[0] - energies[1]) / (2 * step)
    assert forces[1, 2] == pytest.approx(-slope, abs=1e-6)


def test_one_neighbour_list_and_one_evaluation_of_each_model(committee, monkeypatch):
    built, runs, build = [], [], EdgeBuilder.build
    monkeypatch.setattr(
        EdgeBuilder, "build", lambda *args: built.append(1) or build(*args)
    )
    hooks = [
        member.register_forward_pre_hook(lambda *_: runs.append(1))
        for member in committee.model.members
    ]
    atoms = salt(1)
    atoms.calc = committee
    atoms.get_forces(), atoms.get_stress(), committee.get_property("forces_std", atoms)
    for hook in hooks:
        hook.remove()
    assert (len(built), len(runs)) == (1, 3)


def test_a_single_model_has_no_standard_deviations(singles):
    assert "energy_std" not in singles[0].implemented_properties
    with pytest.raises(PropertyNotImplementedError):
        singles[0].get_property("energy_std", salt())


def test_a_model_twice_has_no_spread():
    calc = DP([FILES[0]] * 2, device="cpu")
    found, alone = results(calc, salt()), results(DP(FILES[0], device="cpu"), salt())
    assert found["energy_std"] == 0
    assert not found["forces_std"].any()
    np.testing.assert_array_equal(found["forces"], alone["forces"])


def test_elements_may_be_in_another_order(pair_model, structures):
    other = copy.deepcopy(pair_model)
    other.type_map = ("Cu", "H", "O")
    rename = [1, 2, 0]  # type of H, O, Cu in the other model

    class Renamed(type(pair_model)):
        type_map = ("Cu", "H", "O")

        def forward(self, types, edges, conditions):
            assert types.tolist() == [rename[t] for t in own]
            back = torch.tensor([rename.index(t) for t in range(3)])
            return super().forward(back[types], edges, conditions)

    atoms = structures["triclinic"]
    own = [pair_model.type_map.index(s) for s in atoms.symbols]
    found = results(DP([pair_model, Renamed()]), atoms)
    np.testing.assert_array_equal(
        found["forces"], results(DP(pair_model), atoms)["forces"]
    )
    assert found["energy_std"] == 0


def test_ase_ignores_what_it_has_no_name_for(committee, tmp_path):
    atoms = salt()
    atoms.calc = committee
    energy = atoms.get_potential_energy()
    for name in ("a.traj", "a.extxyz", "a.json"):
        write(tmp_path / name, atoms)
        assert read(tmp_path / name).get_potential_energy() == pytest.approx(energy)
    with connect(tmp_path / "a.db") as database:
        database.write(atoms, energy_std=committee.results["energy_std"])
        row = database.get(1)
    assert row.energy == energy
    assert row.energy_std == committee.results["energy_std"]
    assert row.calculator_parameters["model"] == [str(file) for file in FILES]


def test_many_structures(committee):
    frames = [salt(3), molecule(3), Atoms("Cu"), salt(4)]
    many = evaluate(frames, committee, progress=False)
    for atoms, found in zip(frames, many, strict=True):
        committee.get_property("energy", atoms)
        expected = {k: v for k, v in committee.results.items() if k != "stresses"}
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-9)


def test_hessian_is_the_mean(committee, singles):
    atoms = molecule()
    mean = np.mean([c.get_hessian(atoms, progress=False) for c in singles], axis=0)
    found = committee.get_hessian(atoms, progress=False)
    np.testing.assert_allclose(found, mean, atol=1e-9)


def test_embeddings_have_no_mean(committee):
    for ask in (committee.get_descriptors, committee.get_last_hidden):
        with pytest.raises(ValueError, match="have embeddings of their own"):
            ask(molecule())


# How it is made


def test_settings_hold_for_each_model(singles):
    calc = DP(FILES, device="cpu", dtype="float64", backward="stream")
    for engine in calc._engine.engines:
        assert engine.settings.backward == "stream"
    expected = np.mean([results(c, salt())["forces"] for c in singles], axis=0)
    np.testing.assert_allclose(results(calc, salt())["forces"], expected, atol=1e-10)
    tables = DP(CLASSIC, device="cpu", compress=True)
    assert all(map(is_compressed, tables.model.members))
    assert results(tables, salt())["energy_std"] > 0


def test_loaded_models(committee):
    models = [load_model(file, device="cpu", dtype="float64") for file in FILES]
    calc = DP(tuple(models))
    assert [m is n for m, n in zip(calc.model.members, models, strict=True)] == [True] * 3
    for same in (calc, DP(calc.model)):
        np.testing.assert_array_equal(
            results(same, salt())["forces"], results(committee, salt())["forces"]
        )


def test_heads(tmp_path):
    branches = {"Ice": Content("zero_block"), "Salt": Content("plain")}
    file = multi_task(branches).save(tmp_path / "heads.pt")
    each = [DP(file, head=head, device="cpu") for head in ("Ice", "Salt")]
    calc = DP([file, file], head=["ice", "Salt"], device="cpu")
    spread = np.std([results(c, salt())["energy"] for c in each])
    assert results(calc, salt())["energy_std"] == pytest.approx(spread, rel=1e-9)
    assert calc.todict()["head"] == ["Ice", "Salt"]
    assert DP.fromdict(calc.todict()).parameters == calc.parameters
    one = DP([file, file], head="Salt", device="cpu")
    assert one.todict()["head"] == "Salt"
    assert results(one, salt())["energy_std"] == 0
    with pytest.raises(ValueError, match="3 heads were given for 2 models"):
        DP([file, file], head=["Ice", "Salt", "Ice"], device="cpu")


def test_it_says_what_it_is(committee):
    assert repr(committee) == (
        "DP(committee of 3 models, 6 Å cutoff, 6 elements: H C O Na Cl Cu; "
        "float64 on cpu)"
    )
    told = committee.settings.describe(committee.model)
    assert told.startswith(
        "3 models, one after the other. Plain PyTorch on cpu in float64"
    )
    assert committee.rcut == 6.0
    assert committee.model.inputs == ()


def test_recorded_and_made_again(committee):
    record = committee.todict()
    assert record["model"] == [str(file) for file in FILES]
    assert len(set(record["provenance"]["sha256"])) == 3
    again = DP.fromdict(record)
    np.testing.assert_array_equal(
        results(again, salt())["forces_std"], results(committee, salt())["forces_std"]
    )
    exchanged = {**record, "model": [record["model"][i] for i in (1, 0, 2)]}
    with pytest.raises(ValueError, match="not the file that these parameters"):
        DP.fromdict(exchanged)


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]
)
def test_copies(duplicate, committee):
    other = duplicate(committee)
    assert repr(other) == repr(committee)
    for name in ("forces", "forces_std", "stresses"):
        np.testing.assert_array_equal(
            results(other, salt(5))[name], results(committee, salt(5))[name]
        )


# What is refused


@pytest.mark.parametrize("models", [[], [FILES[0]], ()])
def test_too_few(models):
    words = rf"two models or more, not {len(models)}; give a single model by itself"
    with pytest.raises(ValueError, match=words):
        DP(models, device="cpu")


def test_other_elements():
    with pytest.raises(
        ValueError, match="1 and 2 of the committee differ in C, Cu, H, O;"
    ):
        DP([FILES[0], CLASSIC[0]], device="cpu", dtype="float64")


def test_other_precision():
    one, two = (load_model(FILES[0], device="cpu", dtype=d) for d in ("float32", None))
    assert one.dtype == two.dtype
    two = load_model(FILES[0], device="cpu", dtype="float64")
    with pytest.raises(ValueError, match="precisions: float32 and float64; give dtype"):
        DP([one, two])


def test_other_inputs(pair_model):
    other = copy.deepcopy(pair_model)
    other.inputs = (InputSpec("fparam", 2, False, True),)
    words = "1 and 2 .* read different things .*: nothing further and fparam; all must"
    with pytest.raises(ValueError, match=words):
        DP([pair_model, other])


def test_other_device(pair_model):
    other = copy.deepcopy(pair_model)
    other.device = torch.device("meta")
    with pytest.raises(ValueError, match="different devices: cpu and meta; load them on"):
        DP([pair_model, other])


@pytest.mark.parametrize("model", [None, 3, [FILES[0], FILES[0]]])
def test_members_that_are_no_models(model):
    with pytest.raises(TypeError, match="must be a path or a loaded model"):
        DP([FILES[0], model], device="cpu")


def test_a_committee_in_a_committee(committee):
    with pytest.raises(ValueError, match="cannot be a member of another"):
        DP([committee.model, committee.model])


def test_a_member_without_a_number_is_an_error(pair_model, structures):
    other = copy.deepcopy(pair_model)
    calc = DP([pair_model, other])
    other.forward = lambda types, edges, _: edges.sum_at_dst(edges.vec[:, 0]) * np.nan
    with pytest.raises(FloatingPointError, match="non-finite energy"):
        calc.calculate(structures["triclinic"])
    assert calc.results == {}
