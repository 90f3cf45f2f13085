"""The Hessian: against closed forms, references, and differences of forces."""

from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import molecule
from dp_calc.models.classic.compress import compress
from torch import nn

import dp_calc.hessian
from dp_calc import DP, load_model
from dp_calc.data import water_model

DATA = Path(__file__).parents[1] / "data"
STRUCTURES = ["triclinic", "tiny", "needle", "slab", "chain", "cluster"]


def differences(calc, atoms, step=1e-4):
    """Hessian by central differences of forces, of fourth order in the step."""

    def forces(atom, axis, distance):
        moved = atoms.copy()
        moved.positions[atom, axis] += distance
        return calc.get_property("forces", moved).ravel()

    rows = []
    for atom, axis in np.ndindex(len(atoms), 3):
        near = forces(atom, axis, step) - forces(atom, axis, -step)
        far = forces(atom, axis, 2 * step) - forces(atom, axis, -2 * step)
        rows.append(-(8 * near - far) / (12 * step))
    return np.array(rows)


def assert_hessian(calc, atoms, tolerance=1e-6):
    """It agrees with differences, is symmetric, and moving all atoms does nothing."""
    result = calc.get_hessian(atoms, progress=False)
    n = len(atoms)
    assert result.shape == (3 * n, 3 * n)
    assert result.dtype == np.float64
    expected = differences(calc, atoms)
    np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance)
    assert (result == result.T).all()
    total = result.reshape(3 * n, n, 3).sum(1)
    np.testing.assert_allclose(total, 0, atol=1e-11 * max(1, np.abs(result).max()))
    return result


def reference(name, structure, folder=DATA):
    with np.load(folder / f"{name}.ref.npz") as stored:
        values = {
            key.partition("/")[2]: stored[key]
            for key in stored.files
            if key.startswith(structure + "/")
        }
    atoms = Atoms(values["numbers"], values["positions"])
    atoms.set_cell(values["cell"])
    atoms.pbc = values["pbc"]
    return atoms, values


# Numbers


@pytest.mark.parametrize("name", STRUCTURES)
def test_pair_potential(name, structures, calc):
    result = assert_hessian(calc, structures[name])
    assert np.abs(result).max() > 1e-3 or name == "tiny"


def test_an_atom_moves_with_its_images(structures, calc):
    """Alone in a cell it keeps all its distances, whatever its images do."""
    atoms = structures["tiny"]
    result = calc.get_hessian(atoms, progress=False)
    assert np.abs(result).max() < 1e-12
    # Two of them in a doubled cell do feel one another.
    pair = calc.get_hessian(atoms.repeat((2, 1, 1)), progress=False)
    assert np.abs(pair).max() > 0.1
    np.testing.assert_allclose(pair.reshape(6, 2, 3).sum(1), 0, atol=1e-12)


def test_two_atoms_in_closed_form(calc):
    """U''(r) along the bond and U'(r) / r across it."""
    atoms = Atoms("OH", [[0, 0, 0], [0, 0, 1.9]])
    up, down = atoms.copy(), atoms.copy()
    up.positions[1, 2] += 1e-5
    down.positions[1, 2] -= 1e-5
    slope = -calc.get_property("forces", atoms)[1, 2]
    change = calc.get_property("forces", down) - calc.get_property("forces", up)
    block = np.diag([slope / 1.9, slope / 1.9, change[1, 2] / 2e-5])
    expected = np.block([[block, -block], [-block, block]])
    result = calc.get_hessian(atoms, progress=False)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ["plain", "neo_narrow"])
def test_molecule(name):
    calc = DP(DATA / f"{name}.pt", dtype="float64", device="cpu")
    atoms, _ = reference(name, "molecule")
    assert np.abs(assert_hessian(calc, atoms[[0, 2, 5]])).max() > 0.1


def test_periodic_cell():
    calc = DP(DATA / "plain.pt", dtype="float64", device="cpu")
    atoms, _ = reference("plain", "small_cell")
    atoms = atoms[:2]
    assert atoms.pbc.all()
    assert atoms.cell.lengths().min() < calc.rcut  # so that images are neighbours
    assert np.abs(assert_hessian(calc, atoms)).max() > 0.01


def test_water():
    calc = DP(water_model(), dtype="float64", device="cpu")
    atoms = molecule("H2O")
    atoms.rattle(0.05, seed=1)
    assert np.abs(assert_hessian(calc, atoms)).max() > 10


def test_further_inputs_of_each_atom_and_of_the_whole():
    calc = DP(DATA / "classic/se_e2_a_options.pt", dtype="float64", device="cpu")
    atoms, values = reference("se_e2_a_options", "cluster", DATA / "classic")
    atoms.info.update(fparam=np.array([0.3, -0.4]), aparam=values["aparam"])
    result = assert_hessian(calc, atoms)
    for change in ({"fparam": np.array([0.3, 0.4])}, {"aparam": values["aparam"][::-1]}):
        other = atoms.copy()
        other.info.update(change)
        difference = calc.get_hessian(other, progress=False) - result
        assert np.abs(difference).max() > 1e-4 * np.abs(result).max()


def test_spins_stay_as_they_are():
    calc = DP(DATA / "spin_version11.pt", dtype="float64", device="cpu")
    atoms, values = reference("spin_version11", "molecule")
    atoms.arrays["spin"] = values["spin"]
    assert_hessian(calc, atoms[[0, 1, 2, 3]])


@pytest.mark.parametrize(
    "name",
    ["se_e2_a", "se_e2_a_twoside", "se_e2_a_resnetdt", "se_e2_r", "se_e3", "se_e3_tebd",
     "dpa1_strip_attn0", "dpa1_strip_oneside_excl"],
)  # fmt: skip
@pytest.mark.parametrize("compressed", [False, True])
def test_classic_models(name, compressed):
    model = load_model(DATA / f"classic/{name}.pt", dtype=torch.float64)
    calc = DP(compress(model) if compressed else model)
    atoms, values = reference(name, "cluster", DATA / "classic")
    expected = values["hessian"]
    result = calc.get_hessian(atoms, progress=False)
    tolerance = 1e-4 if compressed else 1e-8
    assert np.abs(result - expected).max() < tolerance * np.abs(expected).max()


def test_float32():
    exact = DP(DATA / "plain.pt", dtype="float64", device="cpu")
    atoms, _ = reference("plain", "molecule")
    single = DP(DATA / "plain.pt", dtype="float32", device="cpu")
    expected = exact.get_hessian(atoms, progress=False)
    result = single.get_hessian(atoms, progress=False)
    assert result.dtype == np.float64
    error = np.abs(result - expected).max()
    assert 0 < error < 1e-5 * np.abs(expected).max()


def test_no_neighbours(calc):
    for atoms in (Atoms("O"), Atoms("OH", [[0, 0, 0], [0, 0, 9]])):
        result = calc.get_hessian(atoms, progress=False)
        assert result.shape == (3 * len(atoms),) * 2
        assert not result.any()


def test_pairs_that_do_not_interact():
    """This model excludes pairs of Na and Cl, so the energy has no slope at all."""
    calc = DP(DATA / "classic/dpa1_strip_oneside_excl.pt", device="cpu")
    assert calc.model.config.descriptor.exclude_types == ((0, 1),)
    result = calc.get_hessian(Atoms("NaCl", [[0, 0, 0], [0, 0, 2.0]]), progress=False)
    assert not result.any()


# How it is computed


@pytest.mark.parametrize("limit", [1, 40, 10**6])
def test_rows_at_a_time_change_nothing(limit, structures, calc, monkeypatch):
    atoms = structures["triclinic"]
    expected = calc.get_hessian(atoms, progress=False)
    monkeypatch.setattr(dp_calc.hessian, "_EDGES", limit)
    result = calc.get_hessian(atoms, progress=False)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12)


def test_a_streaming_backward_is_for_forces_only():
    atoms, _ = reference("plain", "dimer")
    options = {"dtype": "float64", "device": "cpu"}
    native, stream = (
        DP(DATA / "plain.pt", backward=name, **options) for name in ("native", "stream")
    )
    expected = native.get_hessian(atoms, progress=False)
    assert np.abs(expected).max() > 0.1
    assert (stream.get_hessian(atoms, progress=False) == expected).all()


def test_relabelled_atoms(structures, calc):
    atoms = structures["slab"]
    order = np.random.default_rng(3).permutation(len(atoms))
    rows = (3 * order[:, None] + np.arange(3)).ravel()
    result = calc.get_hessian(atoms[order], progress=False)
    expected = calc.get_hessian(atoms, progress=False)[np.ix_(rows, rows)]
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12)


def test_repeats_are_bit_identical(structures, calc):
    atoms = structures["triclinic"]
    first, second = (calc.get_hessian(atoms, progress=False) for _ in range(2))
    assert (first == second).all()


def test_within_inference_mode(structures, calc):
    expected = calc.get_hessian(structures["chain"], progress=False)
    with torch.inference_mode():
        result = calc.get_hessian(structures["chain"], progress=False)
    assert (result == expected).all()


def test_progress_goes_to_stderr(calc, capsys):
    atoms = Atoms("OH", [[0, 0, 0], [0, 0, 2]])
    calc.get_hessian(atoms)
    out, err = capsys.readouterr()
    assert out == ""
    assert "6/6" in err
    calc.get_hessian(atoms, progress=False)
    assert capsys.readouterr() == ("", "")


def test_results_and_structure_are_left_alone(structures, calc):
    atoms = structures["chain"]
    atoms.calc = calc
    energy, results = atoms.get_potential_energy(), dict(calc.results)
    other = structures["slab"]
    calc.get_hessian(other, progress=False)
    assert calc.results == results
    calls = calc.model.calls
    assert atoms.get_potential_energy() == energy
    assert calc.model.calls == calls
    shape = (3 * len(atoms),) * 2
    assert calc.get_hessian(progress=False).shape == shape


# What is refused


def test_what_the_calculator_refuses_is_refused_here_too(calc):
    with pytest.raises(ValueError, match="no structure"):
        calc.get_hessian()
    with pytest.raises(ValueError, match="does not know"):
        calc.get_hessian(Atoms("Xe"))
    with pytest.raises(ValueError, match="apart"):
        calc.get_hessian(Atoms("OH", [[0, 0, 0], [0, 0, 0]]))


class HalfDerivative(torch.autograd.Function):
    """A square whose second derivative misses a part."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y, grad * x.detach()


class Model(nn.Module):
    """A model whose edge energies are ``function(vec)``."""

    type_map, inputs, rcut, shortest_distance = ("O",), (), 4.0, 1e-3
    dtype, device = torch.float64, torch.device("cpu")

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, types, edges, conditions):
        return edges.sum_at_dst(self.function(edges.vec))


WATERS = Atoms("O3", [[0, 0, 0], [1, 0.2, 0.5], [0.3, 1.5, 2]])


def test_incomplete_second_derivatives_are_an_error():
    def function(vec):
        return HalfDerivative.apply(vec[:, 0].square(), vec[:, 1].exp())

    with pytest.raises(ArithmeticError, match="second derivatives of this model are wro"):
        DP(Model(function)).get_hessian(WATERS, progress=False)


def test_missing_second_derivatives_are_an_error():
    def function(vec):
        return HalfDerivative.apply(vec[:, 0].detach(), vec[:, 1])

    with pytest.raises(RuntimeError, match="does not require grad"):
        DP(Model(function)).get_hessian(WATERS, progress=False)


def test_infinite_derivatives_name_the_atom():
    def function(vec):
        return (vec[:, 0] - 1).clamp(min=0) ** 1.5  # its curvature is infinite at 1

    with pytest.raises(FloatingPointError, match="second derivative for atom 0"):
        DP(Model(function)).get_hessian(WATERS, progress=False)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda():
    atoms, _ = reference("plain", "small_cell")
    on_cpu, on_gpu = (
        DP(DATA / "plain.pt", dtype="float64", device=device).get_hessian(atoms)
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=0, atol=1e-9)
