"""Section D: stress, virial, units."""

import warnings

import numpy as np
import pytest
import torch
from ase import Atoms, units
from ase.build import bulk, molecule
from ase.calculators.calculator import PropertyNotImplementedError
from ase.filters import ExpCellFilter, FrechetCellFilter
from ase.optimize import BFGS
from reports import COPPER, SPINS, WATER, evaluate, float64, ice
from torch import nn

from dp_calc import DP

VIRIAL = [[1.0, 2, 3], [4, 5, 6], [7, 8, 9]]


class LopsidedModel(nn.Module):
    """Gives a cubic lattice of side 1 Å the virial ``VIRIAL``, which is not symmetric."""

    type_map = ("H",)
    inputs = ()
    rcut = 1.2  # reaches the six nearest neighbours
    shortest_distance = 1e-3
    dtype = torch.float64
    device = torch.device("cpu")

    def forward(self, types, edges, conditions):
        # dE/dvec is -VIRIAL @ vec / 2: two edges along each axis give one column of it.
        virial = torch.tensor(VIRIAL, dtype=torch.float64)
        slopes = -edges.vec.detach() @ virial.T / 2
        return edges.sum_at_dst((slopes * edges.vec).sum(1))


@pytest.mark.case("D1")
def test_off_diagonal_stress_is_the_mean_of_both_halves():
    calc, atoms = DP(LopsidedModel()), Atoms("H", cell=[1, 1, 1], pbc=True)
    stress = calc.get_property("stress", atoms)
    np.testing.assert_allclose(stress, [-1, -5, -9, -7, -5, -3], rtol=1e-14)
    np.testing.assert_allclose(calc.results["virial"], VIRIAL, rtol=1e-14)
    atoms.calc = calc
    full = atoms.get_stress(voigt=False)
    np.testing.assert_allclose(full, full.T, rtol=1e-14)
    np.testing.assert_allclose(calc.get_property("stresses", atoms)[0], stress)


def _sheared_ice():
    atoms = ice()
    atoms.rattle(0.03, seed=2)
    shear = np.array([[1.01, 0.02, -0.03], [0, 0.98, 0.04], [0, 0, 1.03]])
    atoms.set_cell(atoms.cell.array @ shear, scale_atoms=True)
    return atoms


def _energy_by_strain(atoms, calc, strain):
    strained = atoms.copy()
    strained.set_cell(atoms.cell.array @ strain.T, scale_atoms=True)
    return calc.get_property("energy", strained)


@pytest.mark.case("D1", "D5")
def test_all_six_components_are_strain_derivatives_in_ev_per_cubic_angstrom():
    atoms, calc, step = _sheared_ice(), float64(WATER), 1e-4
    stress, by_differences = calc.get_property("stress", atoms), []
    for i, j in ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1)):
        strain = np.zeros((3, 3))
        strain[i, j] += step / 2
        strain[j, i] += step / 2
        plus, minus = (
            _energy_by_strain(atoms, calc, np.eye(3) + s * strain) for s in (1, -1)
        )
        by_differences.append((plus - minus) / (2 * step * atoms.get_volume()))
    np.testing.assert_allclose(stress, by_differences, rtol=0, atol=1e-7)
    assert np.abs(stress[3:]).min() > 1e-4


@pytest.mark.case("D2", "D5")
@pytest.mark.parametrize(("factor", "sign"), [(0.94, -1), (1.06, 1)])
def test_compressed_is_negative_and_stretched_is_positive(factor, sign):
    calc, atoms = DP(WATER), ice()
    _move_molecules_apart(atoms, factor)
    atoms.calc = calc
    stress = atoms.get_stress()
    assert (sign * stress[:3]).min() > 1e-3
    # In GPa these would be tens.
    assert np.abs(stress).max() < 1.0
    virial = calc.results["virial"]
    expected = -atoms.get_stress(voigt=False) * atoms.get_volume()
    np.testing.assert_allclose((virial + virial.T) / 2, expected, rtol=1e-12)
    pressure = -stress[:3].mean()
    slope = _pressure_by_volume(atoms)
    assert pressure == pytest.approx(slope, abs=2e-6)


def _move_molecules_apart(atoms, factor):
    """Scale the cell and keep the shape of both molecules."""
    offsets = atoms.positions - atoms.positions[[0, 1, 0, 0, 1, 1]]
    atoms.set_cell(atoms.cell * factor, scale_atoms=True)
    atoms.positions = atoms.positions[[0, 1, 0, 0, 1, 1]] + offsets


def _pressure_by_volume(atoms):
    calc, step = float64(WATER), 1e-4
    larger, smaller = (
        _energy_by_strain(atoms, calc, (1 + sign * step) * np.eye(3)) for sign in (1, -1)
    )
    volume = atoms.get_volume()
    return -(larger - smaller) / (volume * ((1 + step) ** 3 - (1 - step) ** 3))


@pytest.mark.case("D4")
@pytest.mark.parametrize("make", [lambda: bulk("Cu"), lambda: bulk("Cu", cubic=True)])
def test_stress_has_six_numbers(make):
    calc, atoms = DP(COPPER), make()
    evaluate(atoms, calc)
    assert calc.get_property("stress", atoms).shape == (6,)
    assert calc.results["stress"].shape == (6,)
    assert calc.get_property("stresses", atoms).shape == (len(atoms), 6)
    assert atoms.get_stress(voigt=False).shape == (3, 3)


def _under_pressure(atoms):
    return FrechetCellFilter(atoms, scalar_pressure=1 * units.GPa)


def _along_two_axes(atoms):
    return FrechetCellFilter(atoms, mask=[1, 1, 0, 0, 0, 0])


def _isotropic(atoms):
    return FrechetCellFilter(atoms, hydrostatic_strain=True)


@pytest.mark.case("D6")
@pytest.mark.filterwarnings("ignore:Use FrechetCellFilter:DeprecationWarning")
@pytest.mark.parametrize(
    ("wrap", "pressure", "free"),
    [
        (FrechetCellFilter, 0, [0, 1, 2, 3, 4, 5]),
        (ExpCellFilter, 0, [0, 1, 2, 3, 4, 5]),
        (_isotropic, 0, []),
        (_along_two_axes, 0, [0, 1]),
        (_under_pressure, 1 * units.GPa, [0, 1, 2]),
    ],
)
def test_cells_relax_to_the_wanted_stress(wrap, pressure, free):
    atoms = ice()
    atoms.calc = DP(WATER)
    minimum, volume = atoms.get_potential_energy(), atoms.get_volume()
    atoms.rattle(0.005, seed=0)
    atoms.set_cell(atoms.cell * 1.005, scale_atoms=True)
    assert BFGS(wrap(atoms), logfile=None).run(fmax=5e-3, steps=60)
    assert np.abs(atoms.get_forces()).max() < 5e-3
    stress = atoms.get_stress()
    limit = 5e-3 * len(atoms) / atoms.get_volume()  # what fmax means to the filters
    assert np.abs(stress[free] + pressure).max(initial=0) < limit
    if wrap is _isotropic:
        assert abs(stress[:3].mean()) < limit
    if pressure:
        assert atoms.get_volume() < volume
        assert atoms.get_potential_energy() > minimum
    else:
        assert atoms.get_potential_energy() == pytest.approx(minimum, rel=0, abs=5e-4)


@pytest.mark.filterwarnings("ignore:Use FrechetCellFilter:DeprecationWarning")
@pytest.mark.case("D6")
@pytest.mark.parametrize("wrap", [FrechetCellFilter, ExpCellFilter])
def test_relaxing_the_cell_of_a_molecule_says_that_there_is_no_stress(wrap):
    atoms = molecule("H2O")
    atoms.calc = DP(WATER)
    with pytest.raises(PropertyNotImplementedError, match="no axis of this one is"):
        BFGS(wrap(atoms), logfile=None).run(fmax=1e-2, steps=2)


@pytest.mark.case("D7")
@pytest.mark.parametrize("make", [lambda: bulk("Cu"), lambda: Atoms("Cu")])
def test_free_energy_is_the_energy(make):
    calc, atoms = DP(COPPER), make()
    atoms.calc = calc
    energy = atoms.get_potential_energy(force_consistent=True)
    assert energy == calc.get_property("free_energy", atoms)
    assert energy == atoms.get_potential_energy()
    assert "free_energy" in calc.implemented_properties


@pytest.mark.case("D8")
@pytest.mark.parametrize("model", [COPPER, WATER, SPINS])
def test_every_declared_property_is_there(model):
    atoms = {WATER: ice, COPPER: lambda: bulk("Cu")}.get(model, lambda: bulk("Cu"))()
    atoms.set_array("spin", np.ones((len(atoms), 3)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "this model does not read")
        for name in DP(model).implemented_properties:
            calc = DP(model)  # asked for by itself, without what others left behind
            value = calc.get_property(name, atoms)
            assert np.isfinite(value).all()
            assert calc.results.keys() <= set(calc.implemented_properties)
            with pytest.raises(PropertyNotImplementedError):
                calc.get_property("dipole", atoms)
