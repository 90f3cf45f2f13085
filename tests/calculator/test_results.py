"""What the calculator returns: names, types, signs, units, and when it evaluates."""

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk, molecule
from ase.calculators.calculator import PropertyNotImplementedError
from ase.constraints import FixAtoms

from dp_calc import DP

VOIGT = [(0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1)]
SHAPES = {
    "energies": ("N",),
    "forces": ("N", 3),
    "virial": (3, 3),
    "stress": (6,),
    "stresses": ("N", 6),
}


def test_numbers_equal_those_of_loops_over_pairs(atoms, calc, reference):
    energies, forces, virial = reference(atoms)
    atoms.calc = calc
    assert atoms.get_potential_energy() == pytest.approx(energies.sum(), abs=1e-12)
    np.testing.assert_allclose(atoms.get_potential_energies(), energies, atol=1e-12)
    np.testing.assert_allclose(atoms.get_forces(), forces, atol=1e-12)
    np.testing.assert_allclose(calc.get_property("virial", atoms), virial, atol=1e-12)


def test_types_and_shapes(structures, calc):
    atoms = structures["triclinic"]
    for name in calc.implemented_properties:
        value = calc.get_property(name, atoms)
        if name in ("energy", "free_energy"):
            assert type(value) is float
        else:
            assert value.shape == tuple(
                len(atoms) if n == "N" else n for n in SHAPES[name]
            )
            assert value.dtype == np.float64
            assert value.flags.c_contiguous
            assert value.flags.owndata


def test_all_results_but_stresses_come_from_the_first_evaluation(
    structures, calc, pair_model
):
    atoms = structures["triclinic"]
    atoms.calc = calc
    atoms.get_potential_energy()
    assert set(calc.results) == {"energy", "free_energy", *SHAPES} - {"stresses"}
    atoms.get_forces(), atoms.get_stress(), atoms.get_potential_energies()
    atoms.get_potential_energy(force_consistent=True)
    assert pair_model.calls == 1


def test_stresses_need_no_second_evaluation_and_sum_to_the_stress(
    structures, calc, pair_model
):
    atoms = structures["slab"]
    atoms.calc = calc
    stress = atoms.get_stress()
    assert "stresses" not in calc.results
    stresses = atoms.get_stresses()
    np.testing.assert_allclose(stresses.sum(axis=0), stress, atol=1e-14)
    assert np.abs(stresses - stress / len(atoms)).max() > 1e-4
    assert pair_model.calls == 1


class Anisotropic(torch.nn.Module):
    """Half of ``vec·M·vec`` per edge: not rotation invariant, so the virial is askew."""

    type_map = ("H",)
    inputs = ()
    rcut = 3.0
    shortest_distance = 0.0
    dtype = torch.float64
    device = torch.device("cpu")
    matrix = torch.tensor([[1.0, 0.2, 0.0], [0.2, 2.0, 0.7], [0.0, 0.7, -1.5]]).double()

    def forward(self, types, edges, conditions):
        return edges.sum_at_dst((edges.vec @ self.matrix * edges.vec).sum(1) / 2)


def test_virial_is_not_symmetrised_and_stress_is(pairs_of):
    atoms = Atoms("H3", [[0, 0, 0], [1, 0.3, 0.2], [0.2, 2.1, 1]], cell=[4, 5, 3.5])
    atoms.pbc = True
    atoms.calc = DP(Anisotropic())
    matrix = Anisotropic.matrix.numpy()
    expected = -sum(np.outer(matrix @ vec, vec) for *_, vec in pairs_of(atoms, 3.0))
    virial = atoms.calc.get_property("virial", atoms)
    np.testing.assert_allclose(virial, expected, atol=1e-12)
    assert np.abs(virial - virial.T).max() > 1
    stress = -(virial + virial.T) / 2 / atoms.get_volume()
    np.testing.assert_allclose(atoms.get_stress(), [stress[ij] for ij in VOIGT])
    np.testing.assert_allclose(atoms.get_stress(voigt=False), stress)


def test_stress_is_tensile_positive(calc):
    for a, sign in ((3.0, -1), (3.8, 1)):
        atoms = bulk("Cu", a=a)
        atoms.calc = calc
        stress = atoms.get_stress()
        assert (sign * stress[:3] > 0).all()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cluster", "no axis"),
        ("cluster in a cell", "no axis"),
        ("slab without a third vector", "volume"),
    ],
)
def test_no_stress_says_why_and_costs_nothing(name, reason, structures, calc, pair_model):
    atoms = structures[name]
    atoms.calc = calc
    for ask in (atoms.get_stress, atoms.get_stresses):
        with pytest.raises(PropertyNotImplementedError, match=reason):
            ask()
    assert np.isfinite(atoms.get_potential_energy())
    assert np.abs(atoms.get_forces()).max() > 0
    assert np.abs(calc.get_property("virial", atoms)).max() > 0
    assert not {"stress", "stresses"} & set(calc.results)
    assert calc.get_property("stress", atoms, allow_calculation=False) is None
    assert pair_model.calls == 1


def test_flat_cell_has_no_stress(structures, calc):
    atoms = structures["slab"]
    atoms.cell[2] = atoms.cell[0] + atoms.cell[1]
    atoms.calc = calc
    atoms.get_forces()
    with pytest.raises(PropertyNotImplementedError, match="volume"):
        atoms.get_stress()


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.positions.__setitem__((0, 0), a.positions[0, 0] + 1e-9),
        lambda a: a.set_cell(a.cell * 1.01),
        lambda a: a.set_pbc((True, False, True)),
        lambda a: a.numbers.__setitem__(0, 8 if a.numbers[0] == 1 else 1),
    ],
    ids=["positions", "cell", "pbc", "numbers"],
)
def test_changes_are_noticed(change, structures, calc, pair_model, reference):
    atoms = structures["triclinic"]
    atoms.calc = calc
    atoms.get_potential_energy()
    change(atoms)
    energies, forces, _ = reference(atoms)
    np.testing.assert_allclose(atoms.get_potential_energies(), energies, atol=1e-12)
    np.testing.assert_allclose(atoms.get_forces(), forces, atol=1e-12)
    assert pair_model.calls == 2


def test_structures_may_share_a_calculator(structures, calc, reference):
    for _ in range(2):
        for atoms in structures.values():
            atoms.calc = calc
            np.testing.assert_allclose(
                atoms.get_forces(), reference(atoms)[1], atol=1e-12
            )


def test_direct_calculate(structures, calc, pair_model, reference):
    atoms = structures["triclinic"]
    calc.calculate(atoms)
    calc.calculate(atoms)
    assert pair_model.calls == 2
    calc.calculate(atoms, ["stresses"], [])
    calc.calculate(properties=["energy"], system_changes=[])
    assert pair_model.calls == 2
    calc.calculate(structures["cluster"], ["energy"], [])
    expected = reference(structures["cluster"])[0].sum()
    assert calc.results["energy"] == pytest.approx(expected, abs=1e-12)


def test_calculate_without_any_structure(calc):
    with pytest.raises(ValueError, match="give atoms"):
        calc.calculate()


def test_returned_arrays_are_the_callers(structures, calc):
    atoms = structures["triclinic"]
    atoms.calc = calc
    kept = {name: calc.get_property(name, atoms) for name in SHAPES}
    copies = {name: value.copy() for name, value in kept.items()}
    moved = atoms.copy()
    moved.rattle(0.1, seed=0)
    moved.calc = calc
    moved.get_stresses()
    for name, value in kept.items():
        np.testing.assert_array_equal(value, copies[name])
        value[...] = np.nan
    for name in kept:
        np.testing.assert_array_equal(calc.get_property(name, atoms), copies[name])
        calc.get_property(name, atoms)[...] = np.nan
        np.testing.assert_array_equal(calc.get_property(name, atoms), copies[name])


def test_the_callers_atoms_are_never_changed(atoms, calc):
    atoms.positions += 100.0
    atoms.info["note"] = [1, 2]
    atoms.new_array("tag", np.arange(len(atoms)))
    atoms.set_constraint(FixAtoms([0]))
    before = atoms.copy()
    calc.calculate(atoms)
    assert atoms == before
    assert atoms.info == before.info
    assert atoms.arrays.keys() == before.arrays.keys()
    assert (atoms.positions == before.positions).all()
    assert (atoms.cell.array == before.cell.array).all()
    assert len(atoms.constraints) == 1


def test_repeats_are_bit_identical(structures, calc):
    atoms = structures["triclinic"]
    first = {name: calc.get_property(name, atoms) for name in SHAPES}
    for _ in range(3):
        calc.calculate(structures["needle"])
        for name, value in first.items():
            np.testing.assert_array_equal(calc.get_property(name, atoms), value)


def test_order_of_atoms_does_not_matter(structures, calc):
    atoms = structures["triclinic"]
    order = [3, 0, 4, 2, 1]
    forces = calc.get_property("forces", atoms)
    permuted = calc.get_property("forces", atoms[order])
    np.testing.assert_allclose(permuted, forces[order], atol=1e-13)


@pytest.mark.parametrize("periodic", [True, False])
def test_lone_atoms(periodic, calc):
    one = Atoms("O", cell=[40, 40, 40] if periodic else None, pbc=periodic)
    one.calc = calc
    assert one.get_potential_energy() == 0.5
    np.testing.assert_array_equal(one.get_forces(), np.zeros((1, 3)))
    np.testing.assert_array_equal(calc.results["virial"], np.zeros((3, 3)))
    if periodic:
        np.testing.assert_array_equal(one.get_stress(), np.zeros(6))
        np.testing.assert_array_equal(one.get_stresses(), np.zeros((1, 6)))


@pytest.mark.parametrize("distance", [5.001, 50, 1e6, 1e9])
def test_atoms_out_of_reach(distance, calc):
    pair = Atoms("OCu", [[0, 0, 0], [0.6 * distance, 0.8 * distance, 0]])
    pair.calc = calc
    assert pair.get_potential_energy() == 2.5
    np.testing.assert_array_equal(pair.get_forces(), np.zeros((2, 3)))


def test_after_a_sparse_system_nothing_is_missing(structures, calc, reference):
    dense = structures["tiny"]
    for atoms in (dense, Atoms("Cu", cell=[30] * 3, pbc=True), dense, molecule("H2O")):
        expected = reference(atoms)[0].sum()
        assert calc.get_property("energy", atoms) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_surrounding_grad_mode_does_not_matter(context, structures, calc, reference):
    atoms = structures["slab"]
    with context():
        forces = calc.get_property("forces", atoms)
        assert not torch.is_grad_enabled()
    np.testing.assert_allclose(forces, reference(atoms)[1], atol=1e-12)


def test_global_state_is_left_alone(structures, calc):
    state = torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        in_double = calc.get_property("forces", structures["slab"])
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    calc.reset()
    in_single = calc.get_property("forces", structures["slab"])
    np.testing.assert_array_equal(in_double, in_single)
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)
