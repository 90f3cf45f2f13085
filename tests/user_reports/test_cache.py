"""Section A: results that are kept too long, or belong to someone else."""

import copy

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, fcc111, molecule
from ase.constraints import FixAtoms
from reports import CHARGED, COPPER, SPINS, WATER, evaluate, evaluations, water4

from dp_calc import DP


@pytest.mark.case("A1")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"charge_spin": [0, 1]}, {"charge_spin": [1, 2]}),
        ({"charge": 0, "spin": 1}, {"charge": 1, "spin": 2}),
        ({"charge_spin": [0, 1]}, {"charge": 1, "spin": 2}),
    ],
)
def test_editing_info_gives_the_new_energy(before, after):
    calc, atoms = DP(CHARGED), molecule("H2O")
    passes = evaluations(calc)
    atoms.info.update(before)
    first = evaluate(atoms, calc)[0]
    atoms.info.clear()
    atoms.info.update(after)
    second = atoms.get_potential_energy()
    assert len(passes) == 2
    assert second != first
    atoms.info["comment"] = "read by no model"
    assert atoms.get_potential_energy() == second
    assert len(passes) == 2
    atoms.info.clear()
    with pytest.raises(ValueError, match="needs the total charge"):
        atoms.get_potential_energy()


def _replace(atoms):
    atoms.info["charge_spin"] = np.array([1, 2])


def _edit_in_place(atoms):
    atoms.info["charge_spin"][0] = 1


def _edit_a_view(atoms):
    np.asarray(atoms.info["charge_spin"])[:] += 1


@pytest.mark.case("A2")
@pytest.mark.parametrize("change", [_replace, _edit_in_place, _edit_a_view])
def test_editing_an_array_in_info_gives_the_new_energy(change):
    calc, atoms = DP(CHARGED), molecule("H2O")
    passes = evaluations(calc)
    atoms.info["charge_spin"] = np.array([0, 1])
    first = evaluate(atoms, calc)[0]
    atoms.info["charge_spin"] = np.array([0, 1])
    assert atoms.get_potential_energy() == first
    assert len(passes) == 1
    change(atoms)
    assert atoms.get_potential_energy() != first
    assert len(passes) == 2


@pytest.mark.case("A3")
def test_editing_spins_gives_the_new_energy():
    calc, atoms = DP(SPINS), bulk("Cu") * (2, 1, 1)
    atoms.new_array("spin", np.zeros((2, 3)))
    energies = [evaluate(atoms, calc)[0]]
    atoms.arrays["spin"][0] = [0, 0, 1]
    energies.append(atoms.get_potential_energy())
    atoms.set_array("spin", np.ones((2, 3)))
    energies.append(atoms.get_potential_energy())
    assert len(set(energies)) == 3
    del atoms.arrays["spin"]
    with pytest.raises(ValueError, match="needs the spin of each atom"):
        atoms.get_forces()


@pytest.mark.case("A5")
@pytest.mark.parametrize("between", ["one atom", "small cell", "sparse gas", "error"])
def test_a_sparse_structure_truncates_nothing_afterwards(between):
    calc, dense = DP(COPPER), bulk("Cu") * (3, 3, 3)
    dense.rattle(0.05, seed=0)
    energy, forces = evaluate(dense, calc)
    other = {
        "one atom": Atoms("Cu", cell=[30] * 3, pbc=True),
        "small cell": bulk("Cu"),
        "sparse gas": Atoms("Cu3", [[0, 0, 0], [0, 0, 5.5], [0, 40, 0]]),
        "error": Atoms("Cu2"),
    }[between]
    if between == "error":
        with pytest.raises(ValueError, match="apart"):
            evaluate(other, calc)
    else:
        evaluate(other, calc)
    again = evaluate(dense.copy(), calc)
    assert again[0] == energy
    np.testing.assert_array_equal(again[1], forces)


@pytest.mark.case("A5")
def test_results_do_not_depend_on_how_a_structure_was_reached():
    calc, atoms = DP(COPPER), bulk("Cu", cubic=True) * (2, 2, 1)
    random = np.random.default_rng(0)
    for step in range(12):
        atoms.rattle(0.05, rng=random)
        if step % 4 == 3:
            atoms.set_cell(atoms.cell * 1.01, scale_atoms=True)
            atoms.positions += 0.7
        energy, forces = evaluate(atoms, calc)
        expected = evaluate(atoms.copy(), DP(calc.model))
        assert energy == expected[0]
        np.testing.assert_array_equal(forces, expected[1])


@pytest.mark.case("A6")
@pytest.mark.parametrize("first", ["energy", "forces", "stress", "stresses"])
def test_energy_forces_and_stress_take_one_pass(first):
    calc, atoms = DP(WATER), water4()
    passes = evaluations(calc)
    calc.get_property(first, atoms)
    atoms.calc = calc
    atoms.get_potential_energy()
    atoms.get_potential_energy(force_consistent=True)
    atoms.get_potential_energies()
    atoms.get_forces()
    atoms.get_stress()
    atoms.get_stresses()
    calc.get_property("virial", atoms)
    assert len(passes) == 1


@pytest.mark.case("A7")
def test_arrays_that_were_returned_stay_as_they_are():
    calc, one, two = DP(COPPER), bulk("Cu") * (2, 1, 1), bulk("Cu") * (2, 1, 1)
    one.rattle(0.1, seed=1)
    two.rattle(0.1, seed=2)
    one.calc = calc
    held = {
        name: one.calc.get_property(name, one) for name in calc.implemented_properties
    }
    results = calc.results
    kept = copy.deepcopy(held), copy.deepcopy(results)
    evaluate(two, calc)
    for before, after in zip(kept, (held, results), strict=True):
        assert before.keys() == after.keys()
        for name in before:
            np.testing.assert_array_equal(after[name], before[name])


@pytest.mark.case("A7")
def test_writing_into_returned_arrays_does_no_harm():
    calc, atoms = DP(COPPER), bulk("Cu") * (2, 1, 1)
    atoms.rattle(0.1, seed=1)
    atoms.calc = calc
    forces, stress = atoms.get_forces(), atoms.get_stress()
    for getter, expected in ((atoms.get_forces, forces), (atoms.get_stress, stress)):
        kept = expected.copy()
        expected[:] = np.nan
        np.testing.assert_array_equal(getter(), kept)
    calc.results["energies"][:] = 0
    calc.results["virial"][:] = 0
    for name in ("forces", "stress"):
        assert np.isfinite(calc.results[name]).all()
    arrays = [a for a in calc.results.values() if isinstance(a, np.ndarray)]
    assert not any(np.shares_memory(a, b) for a in arrays for b in arrays if a is not b)
    assert {a.dtype for a in arrays} == {np.dtype("float64")}


def _far_slab():
    atoms = fcc111("Cu", (2, 2, 1), vacuum=4)
    atoms.positions += [30, -40, 50]
    atoms.pbc = (True, True, False)
    return atoms


def _constrained_crystal():
    atoms = bulk("Cu") * (2, 1, 1)
    atoms.set_constraint(FixAtoms([0]))
    atoms.info["note"] = {"kept": [1, 2]}
    atoms.set_tags([3, 4])
    return atoms


@pytest.mark.case("A8")
@pytest.mark.parametrize(
    "make", [lambda: molecule("H2O"), _far_slab, _constrained_crystal]
)
def test_the_structure_of_the_caller_is_left_alone(make):
    atoms, expected = make(), make()
    evaluate(atoms, DP(COPPER))
    _assert_untouched(atoms, expected)


@pytest.mark.case("A8")
def test_a_structure_that_is_refused_is_left_alone():
    atoms = Atoms("CuAu", [[0, 0, 0], [9, 9, 9]])
    expected = atoms.copy()
    with pytest.raises(ValueError, match="contains Au"):
        evaluate(atoms, DP(COPPER))
    _assert_untouched(atoms, expected)


def _assert_untouched(atoms, expected):
    assert atoms == expected
    assert atoms.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(atoms.arrays[name], array)
    np.testing.assert_array_equal(atoms.cell, expected.cell)
    np.testing.assert_array_equal(atoms.pbc, expected.pbc)
    assert repr(atoms.info) == repr(expected.info)
    assert len(atoms.constraints) == len(expected.constraints)
