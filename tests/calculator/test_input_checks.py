"""Input that cannot be evaluated is refused in one sentence, before the model runs."""

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import molecule

from dp_calc import DP

PERIODIC = {"cell": [4, 4, 4], "pbc": True}


def _with_number(number):
    atoms = Atoms("O2", [[0, 0, 0], [0, 0, 2]])
    atoms.numbers[1] = number
    return atoms


def _with_cell(cell, pbc=True):
    return Atoms("O", cell=cell, pbc=pbc)


BAD = {
    "no atoms": (Atoms(), "no atoms"),
    "unknown element": (molecule("CO2"), "contains C,.* knows H, O, Cu"),
    "two unknown elements": (Atoms("OPtAu"), "contains Pt, Au"),
    "unknown by number": (_with_number(118), "contains Og"),
    "no element": (Atoms("X"), "contains X"),
    "number off the table": (_with_number(999), "atomic number 999"),
    "negative number": (_with_number(-1), "atomic number -1"),
    "nan position": (Atoms("HO", [[0, 0, 0], [np.nan, 0, 0]]), r"atom 1 \(O\).*finite"),
    "infinite position": (Atoms("H", [[0, -np.inf, 0]]), r"atom 0 \(H\).*finite"),
    "absurd position": (Atoms("H", [[0, 1e12, 0]], **PERIODIC), r"atom 0 \(H\).*finite"),
    "nan cell": (_with_cell([[4, 0, 0], [0, np.nan, 0], [0, 0, 4]]), "cell.*finite"),
    "infinite open axis": (_with_cell([4, 4, np.inf], (1, 1, 0)), "cell.*finite"),
    "no cell": (_with_cell(None), "axis 0 is periodic but its cell vector is zero"),
    "zero vector": (_with_cell([4, 0, 4]), "axis 1 is periodic"),
    "parallel vectors": (
        _with_cell([[4, 0, 0], [8, 0, 0], [0, 0, 1]], (1, 1, 0)),
        "linearly dependent",
    ),
    "flat cell": (_with_cell([[1, 0, 0], [0, 1, 0], [1, 1, 0]]), "linearly dependent"),
    "all at the origin": (Atoms("O2"), r"atom 0 \(O\) and atom 1 \(O\) are 0 Å apart"),
    "too close": (
        Atoms("HOCu", [[0, 0, 0], [9, 0, 0], [9, 0, 9.9e-4]]),
        r"atom 1 \(O\) and atom 2 \(Cu\) are 0.00099 Å apart.* more than 0.001 Å",
    ),
    "too close to an image": (
        Atoms("HO", [[0, 0, 1e-4], [4, 4, 4]], **PERIODIC),
        r"atom 0 \(H\) and a periodic image of atom 1 \(O\)",
    ),
    "too close when folded": (
        Atoms("HO", [[0, 0, 1e-4], [400, -4, 0]], **PERIODIC),
        r"atom 0 \(H\) and a periodic image of atom 1 \(O\)",
    ),
    "image of its own": (
        _with_cell([20, 9e-4, 20], (False, True, False)),
        r"atom 0 \(O\) and a periodic image of atom 0 \(O\) are 0.0009 Å apart",
    ),
    "cell of a wrong unit": (
        _with_cell([1e-3] * 3),
        r"atom 0 \(O\) and a periodic image of atom 0 \(O\) are 0.001 Å apart",
    ),
    "cell too small to search": (
        _with_cell([0.05] * 3),
        r"too small: atom 0 \(O\) and its own images are 0.05 Å apart",
    ),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("backend", ["vesin", "ase"])
def test_bad_input(name, backend, pair_model):
    atoms, message = BAD[name]
    before = atoms.copy()
    calc = DP(pair_model, nlist_backend=backend)
    for ask in ("energy", "forces", "energy"):
        with pytest.raises(ValueError, match=message) as error:
            calc.get_property(ask, atoms)
        assert "\n" not in str(error.value)
    assert pair_model.calls == 0
    assert calc.results == {}
    np.testing.assert_array_equal(atoms.positions, before.positions)
    np.testing.assert_array_equal(atoms.cell.array, before.cell.array)
    np.testing.assert_array_equal(atoms.numbers, before.numbers)


def test_numbers_changed_in_place_are_checked(calc):
    atoms = Atoms("O2", [[0, 0, 0], [0, 0, 2]])
    atoms.calc = calc
    atoms.get_potential_energy()
    atoms.numbers[:] = 6
    with pytest.raises(ValueError, match="contains C"):
        atoms.get_potential_energy()


def test_an_error_leaves_no_old_results(calc, structures, reference):
    good = structures["slab"]
    energy = calc.get_property("energy", good)
    bad = good.copy()
    bad.positions[0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        calc.calculate(bad)
    assert calc.results == {}
    with pytest.raises(ValueError, match="finite"):
        calc.get_property("forces", bad)
    assert calc.get_property("energy", good) == energy


def test_coincident_atoms_only_where_the_model_takes_close_ones(pair_model):
    pair_model.shortest_distance = 0.0
    calc = DP(pair_model)
    close = Atoms("HO", [[0, 0, 0], [0, 0, 1e-6]])
    assert np.isfinite(calc.get_property("energy", close))
    with pytest.raises(ValueError, match="more than zero"):
        calc.get_property("energy", Atoms("HO"))
    wrapped = Atoms("HO", [[0, 0, 0], [4, 8, -4]], **PERIODIC)
    with pytest.raises(ValueError, match="a periodic image of"):
        calc.get_property("energy", wrapped)


@pytest.mark.parametrize("ask", [DP.calculate, DP.warmup, DP.get_hessian])
def test_something_that_is_no_structure_is_called_so(calc, ask):
    with pytest.raises(TypeError, match=r"must be ase\.Atoms, not 'water'"):
        ask(calc, "water")


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_non_finite_energy_is_an_error(bad, pair_model, structures):
    pair_model.forward = lambda types, edges, conditions: torch.where(
        types == types[2], bad, edges.sum_at_dst(edges.vec.norm(dim=1))
    )
    calc = DP(pair_model)
    atoms = structures["cluster"]
    first = list(atoms.symbols).index(atoms.symbols[2])
    with pytest.raises(
        FloatingPointError, match=rf"energy for atom {first} \({atoms.symbols[2]}\)"
    ):
        calc.get_property("forces", atoms)
    assert calc.results == {}


def test_non_finite_force_is_an_error(pair_model, structures):
    # The square root is finite at zero and its slope is not.
    pair_model.forward = lambda types, edges, conditions: edges.sum_at_dst(
        (edges.vec.norm(dim=1) - edges.vec.norm(dim=1).min()).sqrt()
    )
    with pytest.raises(FloatingPointError, match="non-finite force for atom"):
        DP(pair_model).get_property("energy", structures["cluster"])
