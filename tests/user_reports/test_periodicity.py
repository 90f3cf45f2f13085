"""Section C: periodicity, cells, neighbours."""

import itertools
import re
import warnings
from pathlib import Path

import dp_calc.kernels
import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, fcc111, molecule
from ase.calculators.calculator import PropertyNotImplementedError
from ase.neighborlist import neighbor_list
from reports import (
    COPPER,
    DATA,
    TINY,
    WATER,
    evaluate,
    evaluations,
    float64,
    ice,
    needs_cuda,
    water4,
)

from dp_calc import DP

KERNELS = Path(dp_calc.kernels.__file__).parent
# What is done with the number of a program: the rest of the line and the following one.
PROGRAM = r"tl\.program_id\(0\)(.*\n.*)"
WIDENED = r"\.to\(tl\.int64\)| % N_FOCUS\n| // N_FOCUS\n.* block\.to\(tl\.int64\)"
OPEN_OR_PERIODIC = list(itertools.product([True, False], repeat=3))


def _water_slab():
    atoms = water4()
    atoms.set_cell([4.95, 4.95, 12])
    atoms.pbc = (True, True, False)
    return atoms


def _copper_slab():
    atoms = fcc111("Cu", (1, 1, 3), vacuum=8)
    atoms.pbc = (True, True, False)
    atoms.rattle(0.02, seed=0)
    return atoms


@pytest.mark.case("C1")
@pytest.mark.parametrize(
    ("model", "make"), [(WATER, _water_slab), (COPPER, _copper_slab)], ids=["water", "Cu"]
)
def test_slab_stress_is_the_strain_derivative_over_the_true_volume(model, make):
    atoms, step = make(), 1e-4
    stresses = [
        DP(model, dtype=d).get_property("stress", atoms) for d in (None, "float64")
    ]
    np.testing.assert_allclose(stresses[0], stresses[1], rtol=0, atol=1e-6)
    calc = float64(model)
    for axis in (0, 1):
        energies = []
        for sign in (1, -1):
            strain = np.eye(3)
            strain[axis, axis] += sign * step
            strained = atoms.copy()
            strained.set_cell(atoms.cell.array @ strain, scale_atoms=False)
            strained.positions = atoms.positions @ strain
            energies.append(calc.get_property("energy", strained))
        slope = (energies[0] - energies[1]) / (2 * step)
        assert stresses[1][axis] == pytest.approx(slope / atoms.get_volume(), abs=1e-7)


@pytest.mark.case("C3")
@pytest.mark.parametrize(
    "cell",
    [np.eye(3), [[1, 2, 0], [0, 1, 0], [9, 0, 0.1]], np.full((3, 3), 1e-3), -np.eye(3)],
    ids=["unit", "skewed", "flat", "negative"],
)
def test_a_molecule_with_a_cell_is_a_molecule(cell):
    calc, atoms = DP(WATER), molecule("H2O")
    energy, forces = evaluate(atoms, calc)
    boxed = atoms.copy()
    boxed.set_cell(cell)
    boxed.pbc = False
    np.testing.assert_allclose(evaluate(boxed, calc)[0], energy, rtol=0, atol=1e-6)
    np.testing.assert_allclose(boxed.get_forces(), forces, rtol=0, atol=1e-5)


@pytest.mark.case("C4")
@pytest.mark.parametrize("pbc", OPEN_OR_PERIODIC)
def test_each_axis_is_periodic_or_open_by_itself(pbc):
    """However long the vector of an open axis is, nothing repeats along it."""
    calc, crystal = DP(COPPER), bulk("Cu", cubic=True) * (1, 1, 2)
    crystal.rattle(0.05, seed=0)
    crystal.pbc = pbc
    energy, forces = evaluate(crystal, calc)
    for factor in (0.2, 5.0):
        other = crystal.copy()
        scale = np.where(pbc, 1.0, factor)
        other.set_cell(crystal.cell.array * scale[:, None], scale_atoms=False)
        np.testing.assert_allclose(evaluate(other, calc)[0], energy, rtol=0, atol=8e-6)
        np.testing.assert_allclose(other.get_forces(), forces, rtol=0, atol=1e-5)
    repeated = crystal.repeat([2 if periodic else 1 for periodic in pbc])
    n = len(repeated) / len(crystal)
    assert evaluate(repeated, calc)[0] == pytest.approx(n * energy, abs=8e-6 * n)


@pytest.mark.case("C4")
def test_slabs_across_a_thin_vacuum_do_not_interact():
    calc, energies = DP(COPPER), []
    for vacuum in (1.0, 30.0):
        atoms = fcc111("Cu", (2, 2, 2), vacuum=vacuum)
        atoms.pbc = (True, True, False)
        energies.append(evaluate(atoms, calc)[0])
        # The same with the axes in another order.
        for order in ([1, 2, 0], [2, 0, 1], [0, 2, 1]):
            turned = atoms.copy()
            turned.set_cell(atoms.cell.array[order])
            turned.pbc = atoms.pbc[order]
            energies.append(evaluate(turned, calc)[0])
    np.testing.assert_allclose(energies, energies[0], rtol=0, atol=8e-6)


@pytest.mark.case("C5")
@pytest.mark.parametrize("pbc", OPEN_OR_PERIODIC[:-1])
def test_unwrapped_coordinates_change_nothing(pbc):
    calc, atoms = DP(COPPER), bulk("Cu", cubic=True) * (2, 2, 2)
    atoms.pbc = pbc
    atoms.rattle(0.05, seed=3)
    energy, forces = evaluate(atoms, calc)
    apart = atoms.copy()
    cells = np.random.default_rng(0).integers(-5, 6, (len(atoms), 3)) * np.array(pbc)
    apart.positions += cells @ apart.cell.array
    np.testing.assert_allclose(evaluate(apart, calc)[0], energy, rtol=0, atol=1e-5)
    np.testing.assert_allclose(apart.get_forces(), forces, rtol=0, atol=1e-5)
    np.testing.assert_allclose(apart.get_stress(), atoms.get_stress(), atol=1e-6)


@pytest.mark.case("C6")
@pytest.mark.parametrize("pbc", [True, False])
@pytest.mark.parametrize("distance", [1, 40, 1000, 1e6])
def test_a_large_translation_costs_no_precision(distance, pbc):
    calc, atoms = DP(COPPER), bulk("Cu", cubic=True) * (2, 2, 2)
    atoms.pbc = pbc
    atoms.rattle(0.05, seed=3)
    energy, forces = evaluate(atoms, calc)
    far = atoms.copy()
    far.positions += distance * np.array([1.0003, -0.7771, 0.5129])
    np.testing.assert_allclose(evaluate(far, calc)[0], energy, rtol=0, atol=1e-5)
    np.testing.assert_allclose(far.get_forces(), forces, rtol=0, atol=1e-5)


@pytest.mark.case("C8")
@pytest.mark.parametrize(
    ("make", "model", "dtype", "limit"),
    [
        (ice, WATER, None, 1e-6),
        (lambda: bulk("Cu"), COPPER, "float64", 1e-10),
        (lambda: Atoms("Cu", cell=[2.5, 2.5, 30], pbc=True), COPPER, "float64", 1e-10),
        # One unit in the last place of this model's energies is 1e-6 eV.
        (lambda: bulk("Cu"), COPPER, None, 2e-6),
        (lambda: Atoms("Cu", cell=[2.5, 2.5, 30], pbc=True), COPPER, None, 2e-6),
    ],
    ids=["ice", "crystal, float64", "needle, float64", "crystal", "needle"],
)
def test_cells_smaller_than_the_cutoff_are_extensive(make, model, dtype, limit):
    calc, atoms = DP(model, dtype=dtype), make()
    energy = evaluate(atoms, calc)[0] / len(atoms)
    for n in ((2, 2, 2), (3, 3, 3), (1, 4, 1)):
        repeated = atoms * n
        per_atom = evaluate(repeated, calc)[0] / len(repeated)
        assert per_atom == pytest.approx(energy, abs=limit, rel=0)


@pytest.mark.case("C9")
@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[1:])
@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, 1, 1)])
def test_a_left_handed_cell_is_the_same_lattice(order, signs):
    calc, atoms = DP(COPPER), bulk("Cu", cubic=True)
    atoms.rattle(0.05, seed=1)
    energy, forces = evaluate(atoms, calc)
    stress = atoms.get_stress()
    other = atoms.copy()
    other.set_cell(np.array(signs)[:, None] * atoms.cell.array[list(order)])
    np.testing.assert_allclose(evaluate(other, calc)[0], energy, rtol=0, atol=4e-6)
    np.testing.assert_allclose(other.get_forces(), forces, rtol=0, atol=1e-5)
    np.testing.assert_allclose(other.get_stress(), stress, rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        other.get_stresses().sum(axis=0), stress, rtol=0, atol=1e-6
    )


@pytest.mark.case("C14")
@pytest.mark.parametrize("compression", [1.0, 0.6, 0.4])
def test_a_dense_cluster_keeps_all_its_neighbours(compression):
    calc, atoms = DP(TINY), bulk("Cu", cubic=True) * (3, 3, 3)
    atoms.set_cell(atoms.cell * compression, scale_atoms=True)
    atoms.rattle(0.02, seed=0)
    edges = evaluations(calc)
    evaluate(bulk("Cu"), calc)
    evaluate(atoms, calc)
    assert edges[1] == len(neighbor_list("i", atoms, calc.rcut))
    assert np.isfinite(atoms.get_forces()).all()


ATOM = Atoms("Cu")
ATOM_IN_A_CELL = Atoms("Cu", cell=[40] * 3, pbc=True)
FAR_DIMER = Atoms("Cu2", [[0, 0, 0], [0, 0, 50]])


@pytest.mark.case("C15")
@pytest.mark.parametrize("crystal_first", [True, False])
def test_atoms_without_a_neighbour_have_an_energy_and_no_forces(crystal_first):
    calc = DP(COPPER)
    crystal = bulk("Cu", cubic=True)
    expected = evaluate(crystal, DP(COPPER))[0]
    if crystal_first:
        assert evaluate(crystal, calc)[0] == expected
    energies = {}
    for name, atoms in (("atom", ATOM), ("cell", ATOM_IN_A_CELL), ("dimer", FAR_DIMER)):
        atoms = atoms.copy()
        energies[name], forces = evaluate(atoms, calc)
        np.testing.assert_array_equal(forces, np.zeros((len(atoms), 3)))
        if atoms.pbc.any():
            np.testing.assert_array_equal(atoms.get_stress(), np.zeros(6))
    assert np.isfinite(energies["atom"])
    assert energies["cell"] == energies["atom"]
    assert energies["dimer"] == pytest.approx(2 * energies["atom"], rel=0, abs=1e-5)
    assert evaluate(crystal, calc)[0] == expected


@pytest.mark.case("C15")
def test_far_atoms_are_single_atoms():
    calc = float64(COPPER)
    single, pair = (evaluate(a.copy(), calc)[0] for a in (ATOM, FAR_DIMER))
    assert pair == pytest.approx(2 * single, rel=1e-14)


@pytest.mark.case("C16")
@pytest.mark.parametrize(
    ("atoms", "sentence"),
    [
        (Atoms(), "has no atoms"),
        (Atoms("Cu", [[np.nan, 0, 0]]), "must be finite"),
        (Atoms("Cu", [[0, np.inf, 0]]), "must be finite"),
        (Atoms("Cu", pbc=True), "cell vector is zero"),
        (Atoms("Cu", cell=[4, 4, 0], pbc=True), "cell vector is zero"),
        (Atoms("Cu", cell=[4, np.nan, 4], pbc=True), "must hold finite numbers"),
        (Atoms("Cu", cell=[[4, 0, 0], [8, 0, 0], [0, 0, 4]], pbc=True), "dependent"),
    ],
    ids=["empty", "NaN", "infinite", "no cell", "half a cell", "NaN cell", "flat cell"],
)
def test_structures_that_are_none_get_a_sentence_before_anything_runs(atoms, sentence):
    calc = DP(COPPER)
    passes = evaluations(calc)
    for name in ("energy", "forces", "stress"):
        with pytest.raises(ValueError, match=sentence):
            calc.get_property(name, atoms)
    assert not passes
    assert not calc.results
    assert np.isfinite(evaluate(bulk("Cu"), calc)[0])


@pytest.mark.case("C17")
@pytest.mark.parametrize(
    ("atoms", "pair"),
    [
        (Atoms("Cu2"), r"atom 0 \(Cu\) and atom 1 \(Cu\)"),
        (Atoms("Cu2", [[0, 0, 0], [0, 0, 1e-8]]), r"atom 0 \(Cu\) and atom 1 \(Cu\)"),
        (Atoms("HO", cell=[5] * 3, pbc=True), r"atom 0 \(H\) and atom 1 \(O\)"),
        (Atoms("Cu", cell=[1e-3] * 3, pbc=True), "image of atom 0"),
        (
            Atoms("Cu2", [[0, 0, 0], [0, 0, 5]], cell=[5] * 3, pbc=True),
            "atom 0 .* a periodic image of atom 1",
        ),
    ],
    ids=["default", "nearly", "two elements", "tiny cell", "through the boundary"],
)
def test_coincident_atoms_are_named(atoms, pair):
    calc = DP(COPPER)
    with pytest.raises(ValueError, match=f"{pair}.*move them apart"):
        evaluate(atoms, calc)
    assert np.isfinite(evaluate(bulk("Cu"), calc)[0])


@pytest.mark.case("C17")
@pytest.mark.parametrize("distance", [0.0, 1e-12, 1e-8, 1e-4, 1e-2])
def test_with_short_range_repulsion_only_the_same_place_is_refused(distance):
    calc = DP(DATA / "options" / "default_products.pt")
    atoms = Atoms("H2", [[0, 0, 0], [0, 0, distance]])
    if not distance:
        with pytest.raises(ValueError, match="move them apart"):
            evaluate(atoms, calc)
        return
    energy, forces = evaluate(atoms, calc)
    assert np.isfinite(energy)
    assert np.isfinite(forces).all()
    if distance > 1e-10:  # nearer, the repulsion of the model is a constant
        assert forces[1, 2] > 0 > forces[0, 2]


@pytest.mark.case("C18")
@pytest.mark.parametrize("boxed", [False, True])
def test_a_molecule_has_no_stress(boxed):
    calc, atoms = DP(WATER), molecule("H2O")
    if boxed:
        atoms.center(vacuum=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        energy, forces = evaluate(atoms, calc)
    assert "stress" not in calc.results
    for getter in (atoms.get_stress, atoms.get_stresses):
        with pytest.raises(PropertyNotImplementedError, match="no axis of this one is"):
            getter()
    assert "stress" not in calc.results
    assert atoms.get_potential_energy() == energy
    np.testing.assert_array_equal(atoms.get_forces(), forces)


@pytest.mark.case("C18")
def test_a_slab_without_a_third_vector_has_no_stress():
    calc, atoms = DP(COPPER), fcc111("Cu", (1, 1, 2))
    atoms.pbc = (True, True, False)
    atoms.set_cell([*atoms.cell.array[:2], [0, 0, 0]])
    assert np.isfinite(evaluate(atoms, calc)[0])
    with pytest.raises(PropertyNotImplementedError, match="give open axes a vector"):
        atoms.get_stress()


@pytest.mark.case("C19")
@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float64", 1e-9), ("float32", 3e-6)],  # as examples/docs/numbers.md promises
)
def test_64000_atoms_are_64000_times_one_atom(dtype, tolerance):
    exact = evaluate(bulk("Cu"), DP(COPPER, device="cuda", dtype="float64"))[0]
    calc, crystal = DP(COPPER, device="cuda", dtype=dtype), bulk("Cu") * (40, 40, 40)
    per_atom = evaluate(crystal, calc)[0] / len(crystal)
    assert per_atom == pytest.approx(exact, abs=tolerance, rel=0)
    assert np.abs(crystal.get_forces()).max() < 1e-4


@pytest.mark.case("C19")
def test_1000_atoms_are_1000_times_one_atom():
    calc = DP(TINY)
    energy = evaluate(bulk("Cu"), calc)[0]
    crystal = bulk("Cu") * (10, 10, 10)
    assert evaluate(crystal, calc)[0] / len(crystal) == pytest.approx(energy, abs=1e-6)


@pytest.mark.case("C19")
def test_every_kernel_counts_its_programs_in_64_bits():
    """A product of an index and a stride overflows 32 bits before anybody sees it.

    Programs of the first axis grow with the system; of the others there are few.
    """
    sources = [path.read_text(encoding="utf-8") for path in KERNELS.rglob("*.py")]
    counted = [use for text in sources for use in re.findall(PROGRAM, text)]
    assert counted
    assert [use for use in counted if not re.match(WIDENED, use)] == []
