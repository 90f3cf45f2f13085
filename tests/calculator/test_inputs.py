"""Charge and spin state, spins, frame and atomic parameters: read, checked, watched."""

import copy
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.calculator import PropertyNotImplementedError
from ase.io import read, write

from dp_calc import DP

DATA = Path(__file__).parents[1] / "data"
SHARED = Path(__file__).parents[3] / "shared" / "data" / "dpa4"
ALL = ["charge_spin", "spin", "fparam", "aparam"]


def reference(name, folder=DATA):
    """Structures of ``NAME.ref.npz`` with their inputs set, and the values expected."""
    with np.load(folder / f"{name}.ref.npz") as stored:
        content = {key: stored[key] for key in stored.files}
    cases = {}
    for structure in sorted({key.split("/")[0] for key in content}):
        values = {
            key.split("/")[1]: value
            for key, value in content.items()
            if key.startswith(f"{structure}/")
        }
        atoms = Atoms(values["numbers"], values["positions"], pbc=values["pbc"])
        atoms.set_cell(values["cell"])
        atoms.info.update(
            {k: values[k] for k in ("charge_spin", "fparam") if k in values}
        )
        atoms.arrays.update({k: values[k] for k in ("spin", "aparam") if k in values})
        cases[structure] = atoms, values
    return cases


def count_calls(calc):
    """List that grows by one with each evaluation of the calculator's model."""
    calls = []
    calc.model.register_forward_hook(lambda *_: calls.append(1))
    return calls


@pytest.fixture(scope="module")
def model():
    return DP(DATA / "conditions.pt", dtype="float64", device="cpu").model


@pytest.fixture
def calc(model):
    calc = DP(model)
    yield calc
    model._forward_hooks.clear()


@pytest.fixture
def atoms(calc):
    atoms = reference("conditions")["molecule"][0]
    atoms.calc = calc
    return atoms


# The numbers


def assert_agrees(calc, cases):
    for atoms, values in cases.values():
        names = {
            "energy": "energy",
            "energies": "energies",
            "forces": "forces",
            "virial": "virial",
        }
        if "force_mag" in values:
            names["magnetic_forces"] = "force_mag"
        for ours, theirs in names.items():
            result, expected = calc.get_property(ours, atoms), values[theirs]
            scale = max(1.0, np.abs(expected).max())
            np.testing.assert_allclose(result, expected, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("backward", ["native", "stream"])
@pytest.mark.parametrize("name", ["conditions", "spin_version11", "deepspin"])
def test_results_with_every_kind_of_input(name, backward):
    path = DATA / f"{name}.pt"
    calc = DP(path, dtype="float64", device="cpu", backward=backward)
    assert_agrees(calc, reference(name))


@pytest.mark.parametrize("name", ["charge_spin", "native_spin"])
def test_results_of_larger_models(name):
    if not SHARED.exists():
        pytest.skip(f"put the folder with {name}.pt and its references at {SHARED}")
    cases = reference(name, SHARED)
    if name == "charge_spin":
        for atoms, _ in cases.values():
            atoms.info.update(charge=1, spin=2)
    assert_agrees(DP(SHARED / f"{name}.pt", dtype="float64", device="cpu"), cases)


def test_float32_results():
    calc = DP(DATA / "conditions.pt", device="cpu")
    for atoms, values in reference("conditions").values():
        for ours, theirs in (("forces", "forces"), ("magnetic_forces", "force_mag")):
            result, expected = calc.get_property(ours, atoms), values[theirs]
            scale = max(1.0, np.abs(values["forces"]).max())
            np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5 * scale)
            assert result.dtype == np.float64


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["conditions", "deepspin"])
def test_cuda_results(name):
    calc = DP(DATA / f"{name}.pt", dtype="float64", device="cuda")
    assert_agrees(calc, reference(name))
    calls = count_calls(calc)
    atoms = reference(name)["molecule"][0]
    for _ in range(2):
        calc.get_property("energy", atoms)
        assert len(calls) == 1


@pytest.mark.parametrize("name", ["conditions", "deepspin"])
def test_magnetic_forces_are_derivatives(name):
    calc = DP(DATA / f"{name}.pt", dtype="float64", device="cpu")
    atoms, _ = reference(name)["molecule"]
    forces = calc.get_property("magnetic_forces", atoms)
    rng = np.random.default_rng(0)
    for _ in range(3):
        direction = rng.normal(size=forces.shape)
        energies = []
        for step in (1e-4, -1e-4):
            turned = atoms.copy()
            turned.arrays["spin"] = atoms.arrays["spin"] + step * direction
            energies.append(calc.get_property("energy", turned))
        slope = (energies[0] - energies[1]) / 2e-4
        assert -slope == pytest.approx((forces * direction).sum(), abs=1e-6)


@pytest.mark.parametrize("name", ["conditions", "deepspin"])
@pytest.mark.parametrize("symbols", ["C", "C2", "CO"])
def test_atoms_without_spin_have_no_magnetic_force(name, symbols):
    calc = DP(DATA / f"{name}.pt", device="cpu")
    positions = 1.3 * np.arange(len(Atoms(symbols)))[:, None] * [[1, 0, 0]]
    atoms = Atoms(symbols, positions)
    atoms.arrays["spin"] = np.ones((len(atoms), 3))
    if name == "conditions":
        atoms.info.update(charge_spin=[0, 1], fparam=[0, 0], aparam=[0, 0, 0])
    magnetic_forces = calc.get_property("magnetic_forces", atoms)
    np.testing.assert_array_equal(magnetic_forces, np.zeros((len(atoms), 3)))


# Forms of each input


def energy_with(calc, atoms, **info):
    changed = atoms.copy()
    changed.info.update(info)
    return calc.get_property("energy", changed)


@pytest.mark.parametrize(
    "form",
    [
        {"charge_spin": [-2, 3]},
        {"charge_spin": (-2.0, 3.0)},
        {"charge_spin": np.array([-2, 3], dtype=np.int8)},
        {"charge_spin": np.array([[-2, 3]], dtype=np.float32)},
        {"charge_spin": torch.tensor([-2, 3])},
        {"charge": -2, "spin": 3},
        {"charge": np.int64(-2), "spin": 3.0},
        {"charge": np.array(-2), "spin": [3]},
        {"charge_spin": [-2, 3], "charge": -2, "spin": 3},
        {"charge_spin": [-2, 3], "charge": -2},
    ],
    ids=str,
)
def test_forms_of_charge_and_spin(form, calc, atoms):
    expected = energy_with(calc, atoms, charge_spin=[-2, 3])
    assert expected != calc.get_property("energy", atoms)
    del atoms.info["charge_spin"]
    assert energy_with(calc, atoms, **form) == expected


@pytest.mark.parametrize("pair", [[-100, 0], [99, 99]])
def test_ends_of_the_tables(pair, calc, atoms):
    assert np.isfinite(energy_with(calc, atoms, charge_spin=pair))


@pytest.mark.parametrize(
    "form",
    [
        [0.5, -2],
        (0.5, -2),
        np.array([[0.5, -2]]),
        torch.tensor([0.5, -2], requires_grad=True),
    ],
    ids=str,
)
def test_forms_of_frame_parameters(form, calc, atoms):
    expected = energy_with(calc, atoms, fparam=np.array([0.5, -2]))
    assert expected != calc.get_property("energy", atoms)
    assert energy_with(calc, atoms, fparam=form) == expected


def test_forms_of_atomic_parameters(calc, atoms):
    own = atoms.arrays.pop("aparam")
    expected = energy_with(calc, atoms, aparam=own)
    for form in (own.tolist(), own.ravel(), own[None], torch.tensor(own)):
        assert energy_with(calc, atoms, aparam=form) == expected
    atoms.arrays["aparam"] = own
    assert calc.get_property("energy", atoms) == expected
    assert energy_with(calc, atoms, aparam=own) == expected
    shared = np.tile([1.0, 2.0, 3.0], (len(atoms), 1))
    del atoms.arrays["aparam"]
    expected = energy_with(calc, atoms, aparam=shared)
    for form in ([1, 2, 3], [[1, 2, 3]]):
        assert energy_with(calc, atoms, aparam=form) == expected


def test_one_parameter_may_be_a_number():
    calc = DP(DATA / "classic" / "se_e2_a_options.pt", device="cpu")
    specs = {spec.name: spec for spec in calc.model.inputs}
    assert specs["aparam"].width == 1
    assert not specs["fparam"].required
    atoms = Atoms(calc.type_map[0] * 3, [[0, 0, 0], [1.1, 0, 0], [0, 1.2, 0.3]])
    expected = energy_with(calc, atoms, aparam=[[2], [2], [2]])
    for form in (2, [2], [2, 2, 2], np.float32(2)):
        assert energy_with(calc, atoms, aparam=form) == expected
    atoms.arrays["aparam"] = np.array([2, 2, 2])
    assert calc.get_property("energy", atoms) == expected


def test_defaults_of_the_model_are_used_and_may_be_replaced():
    calc = DP(DATA / "classic" / "se_e2_a_options.pt", device="cpu")
    default = calc.model.fitting.inputs.default_fparam_tensor.tolist()
    atoms = Atoms(calc.type_map[0] * 2, [[0, 0, 0], [1.1, 0, 0]], info={"aparam": 1.0})
    expected = calc.get_property("energy", atoms)
    assert energy_with(calc, atoms, fparam=default) == expected
    assert energy_with(calc, atoms, fparam=[x + 1 for x in default]) != expected


# Bad input


def without(name):
    def change(atoms):
        atoms.info.pop(name, None)
        atoms.arrays.pop(name, None)

    return change


def info(**values):
    return lambda atoms: atoms.info.update(values)


def only_info(**values):
    def change(atoms):
        del atoms.info["charge_spin"]
        atoms.info.update(values)

    return change


def arrays(**values):
    return lambda atoms: atoms.arrays.update(values)


BAD = {
    "no charge": (without("charge_spin"), "needs the total charge.*multiplicity"),
    "no spin": (without("spin"), r'set atoms.arrays\["spin"\].*\(9, 3\)'),
    "no fparam": (without("fparam"), r"needs 2 frame parameters"),
    "no aparam": (without("aparam"), r'atoms.arrays\["aparam"\].*\(9, 3\)'),
    "charge alone": (only_info(charge=1), r'"charge"\] is given without .*"spin"\]'),
    "multiplicity alone": (only_info(spin=1), r'"spin"\] is given without .*"charge"\]'),
    "two charges": (info(charge=5), r'"charge"\] is 5; remove one'),
    "two spins": (info(charge=1, spin=3), r'\[1.0, 1.0\] but .*"spin"\] is 3'),
    "charge too high": (info(charge_spin=[100, 1]), "charge.* is 100; .* -100 to 99"),
    "charge too low": (info(charge_spin=[-101, 1]), "charge.* is -101"),
    "spin too high": (info(charge_spin=[0, 100]), "spin in .* is 100; .* 0 to 99"),
    "negative spin": (info(charge_spin=[0, -1]), "spin in .* is -1"),
    "broken charge": (info(charge_spin=[0.5, 1]), "is 0.5; it must be a whole number"),
    "broken spin": (info(charge_spin=[0, 1 + 1e-12]), "is 1.000000000001; .* whole"),
    "no multiplicity": (only_info(charge=0, spin=0), "at least 1"),
    "wrong multiplicity": (only_info(charge=0, spin=100), r'"spin"\] is 100'),
    "wrong charge": (only_info(charge=1e3, spin=1), r'"charge"\] is 1000'),
    "many charges": (only_info(charge=[1, 1], spin=1), r"shape \(2,\).* one number"),
    "three numbers": (info(charge_spin=[0, 1, 2]), r"shape \(3,\).*\(2,\)"),
    "one number": (info(charge_spin=3), r"shape \(\);"),
    "none": (info(charge_spin=None), "real numbers, not None"),
    "word": (info(charge_spin="0 1"), "real numbers, not '0 1'"),
    "truth": (info(charge_spin=[False, True]), "real numbers"),
    "complex": (info(charge_spin=[0j, 1]), "real numbers"),
    "dictionary": (info(charge_spin={"charge": 0}), "real numbers, not {'charge'"),
    "ragged": (info(fparam=[[1, 2], [3]]), r'"fparam"\] must hold real numbers'),
    "huge integer": (info(fparam=[10**400, 1]), "real numbers"),
    "nan": (info(fparam=[1, np.nan]), "finite numbers"),
    "infinity": (info(charge_spin=[np.inf, 1]), "finite numbers"),
    "nan spin": (arrays(spin=np.full((9, 3), np.nan)), "finite numbers"),
    "wrong fparam": (info(fparam=[1, 2, 3]), r"shape \(3,\).*frame parameters"),
    "scalar spin": (arrays(spin=np.ones(9)), r"shape \(9,\).*vector.*\(9, 3\)"),
    "transposed spin": (arrays(spin=np.ones((3, 9))), r"shape \(3, 9\).*\(9, 3\)"),
    "short spin": (arrays(spin=np.ones((8, 3))), r"shape \(8, 3\)"),
    "words of spin": (arrays(spin=np.full((9, 3), "up")), "real numbers"),
    "transposed aparam": (arrays(aparam=np.ones((3, 9))), r"shape \(3, 9\)"),
    "aparam for all in arrays": (arrays(aparam=np.ones(3)), r"shape \(3,\)"),
    "other aparam": (info(aparam=[1, 2, 3]), "different values; remove one"),
    "half precision": (info(fparam=torch.ones(2).bfloat16()), "real numbers, not tensor"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_before_anything_runs(name, calc, atoms):
    change, message = BAD[name]
    energy = atoms.get_potential_energy()
    good = atoms.copy()
    calls = count_calls(calc)
    change(atoms)
    for _ in range(2):
        with pytest.raises(ValueError, match=message) as error:
            atoms.get_potential_energy()
        assert "\n" not in str(error.value)
        assert calc.results == {}
    for ask in (calc.get_descriptors, calc.get_last_hidden):
        with pytest.raises(ValueError, match=message):
            ask(atoms)
    assert calls == []
    good.calc = calc
    assert good.get_potential_energy() == energy


# Watching


def replace_in(container, name, value):
    return lambda atoms: getattr(atoms, container).__setitem__(name, value)


def add_in_place(container, name, index):
    def change(atoms):
        getattr(atoms, container)[name][index] += 1

    return change


CHANGES = {
    "charge replaced": replace_in("info", "charge_spin", [7, 1]),
    "charge in a list": add_in_place("info", "charge_spin", 0),
    "spin row in a list": add_in_place("info", "charge_spin", 1),
    "fparam replaced": replace_in("info", "fparam", [0.1, 0.2]),
    "fparam in an array": add_in_place("info", "fparam", 1),
    "aparam in an array": add_in_place("arrays", "aparam", (4, 2)),
    "spin in an array": add_in_place("arrays", "spin", (5, 0)),
    "tiny": lambda atoms: atoms.arrays["spin"].__setitem__(
        5, np.nextafter(atoms.arrays["spin"][5], np.inf)
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_leads_to_one_evaluation(name, calc, atoms):
    atoms.info["charge_spin"] = atoms.info["charge_spin"].tolist()
    before = atoms.get_potential_energy()
    calls = count_calls(calc)
    atoms.get_forces(), atoms.get_potential_energy()
    assert len(calls) == 0
    CHANGES[name](atoms)
    assert calc.check_state(atoms) in [[key] for key in ALL]
    after = atoms.get_potential_energy()
    atoms.get_forces(), calc.get_property("magnetic_forces", atoms)
    assert len(calls) == 1
    fresh = DP(calc.model)
    assert after == fresh.get_property("energy", atoms)
    if name != "tiny":
        assert after != before


def test_changes_of_the_older_form_are_noticed(calc, atoms):
    del atoms.info["charge_spin"]
    atoms.info.update(charge=np.array([0]), spin=np.array([1]))
    first = atoms.get_potential_energy()
    atoms.info["charge"][0] += 1
    second = atoms.get_potential_energy()
    atoms.info["spin"][0] += 1
    third = atoms.get_potential_energy()
    assert len({first, second, third}) == 3


def test_values_count_and_not_their_form(calc, atoms):
    atoms.get_potential_energy()
    calls = count_calls(calc)
    charge, spin = atoms.info.pop("charge_spin")
    atoms.info.update(charge=int(charge), spin=int(spin))
    atoms.info["fparam"] = atoms.info["fparam"].tolist()
    atoms.info["aparam"] = atoms.arrays.pop("aparam").copy()
    atoms.get_forces()
    calc.get_property("energy", atoms.copy())
    assert calls == []


def test_what_no_model_reads_is_not_watched(calc, atoms):
    atoms.get_potential_energy()
    calls = count_calls(calc)
    atoms.info["note"] = "other"
    atoms.arrays["tags"] = np.arange(9)
    atoms.set_initial_charges(np.arange(9.0))
    atoms.set_initial_magnetic_moments(np.ones(9))
    atoms.get_potential_energy()
    assert calls == []


def test_leaving_out_an_input_is_a_change():
    calc = DP(DATA / "classic" / "se_e2_a_options.pt", device="cpu")
    atoms = Atoms(calc.type_map[0] * 2, [[0, 0, 0], [1.1, 0, 0]], info={"aparam": 1.0})
    atoms.calc = calc
    default = atoms.get_potential_energy()
    atoms.info["fparam"] = [3.0, 4.0]
    assert atoms.get_potential_energy() != default
    del atoms.info["fparam"]
    assert atoms.get_potential_energy() == default


def test_changing_what_the_calculator_holds_is_a_change_too(calc, atoms):
    before = atoms.get_potential_energy()
    calc.atoms.info["fparam"][0] += 1
    calc.calculate(properties=["energy"], system_changes=[])
    assert calc.results["energy"] != before


def test_unlike_structures_share_a_calculator(calc):
    cases = reference("conditions")
    for _ in range(2):
        assert_agrees(calc, cases)


def test_the_callers_atoms_stay_as_they_are(atoms, calc):
    before = copy.deepcopy((atoms.info, atoms.arrays))
    atoms.get_forces(), calc.get_descriptors(atoms)
    for now, then in zip((atoms.info, atoms.arrays), before, strict=True):
        assert now.keys() == then.keys()
        for key, value in then.items():
            np.testing.assert_array_equal(now[key], value)
    calc.results["magnetic_forces"][:] = np.nan
    calc.atoms.arrays["spin"][:] = np.nan
    assert np.isfinite(atoms.arrays["spin"]).all()


# What a model does not read


@pytest.mark.parametrize(
    ("container", "key"),
    [
        ("info", "charge_spin"),
        ("info", "charge"),
        ("info", "spin"),
        ("info", "fparam"),
        ("info", "aparam"),
        ("arrays", "spin"),
        ("arrays", "aparam"),
    ],
)
def test_input_that_the_model_does_not_read_warns_once(container, key, pair_model):
    calc = DP(pair_model)
    atoms = Atoms("HO", [[0, 0, 0], [0, 0, 2]])
    expected = calc.get_property("energy", atoms)
    getattr(atoms, container)[key] = np.array([np.nan, 1.0])
    calls = pair_model.calls
    calc.reset()
    with pytest.warns(UserWarning, match=rf'not read atoms.{container}\["{key}"\]$'):
        assert calc.get_property("energy", atoms) == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(atoms, container)[key] = np.array([0.0, 5.0])
        calc.get_property("forces", atoms)
        assert pair_model.calls == calls + 1
        atoms.positions[0, 0] += 0.1
        calc.get_property("forces", atoms)


def test_one_warning_names_all_that_is_not_read(pair_model):
    calc = DP(pair_model)
    atoms = Atoms("HO", [[0, 0, 0], [0, 0, 2]], info={"charge": 0, "spin": 1})
    with pytest.warns(
        UserWarning, match=r'info\["charge"\], atoms.info\["spin"\]'
    ) as all_:
        calc.get_property("energy", atoms)
    assert len(all_) == 1


def test_nothing_warns_where_everything_is_read(calc, atoms):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        atoms.get_potential_energy()


# Properties, files, copies


def test_magnetic_forces_only_where_the_model_has_them(calc, atoms, pair_model):
    assert calc.implemented_properties == [*DP.implemented_properties, "magnetic_forces"]
    other = DP(pair_model)
    assert "magnetic_forces" not in other.implemented_properties
    with pytest.raises(PropertyNotImplementedError):
        other.get_property("magnetic_forces", Atoms("O"))
    assert "magnetic_forces" not in other.results
    result = calc.get_property("magnetic_forces", atoms)
    assert result.shape == (9, 3)
    assert result.dtype == np.float64
    assert "magnetic_forces" not in calc.export_properties()


@pytest.mark.parametrize("suffix", ["traj", "extxyz", "json"])
def test_files_bring_the_inputs_back(suffix, calc, atoms, tmp_path):
    energy = atoms.get_potential_energy()
    write(tmp_path / f"out.{suffix}", atoms)
    back = read(tmp_path / f"out.{suffix}")
    assert back.get_potential_energy() == pytest.approx(energy, abs=1e-7)
    if suffix == "extxyz":  # the other formats keep no arrays of one's own
        assert calc.get_property("energy", back) == pytest.approx(energy, abs=1e-6)


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]
)
def test_copies_of_the_calculator_watch_too(duplicate, calc, atoms):
    energy = atoms.get_potential_energy()
    other = duplicate(calc)
    calls = count_calls(other)
    assert other.get_property("energy", atoms) == energy
    assert calls == []
    atoms.info["fparam"][0] += 1
    assert other.get_property("energy", atoms) != energy
    assert "magnetic_forces" in other.implemented_properties
    assert other.get_property("magnetic_forces", atoms).shape == (9, 3)


def test_repeated_cells_repeat_the_spins(calc):
    atoms, _ = reference("conditions")["triclinic"]
    energy = calc.get_property("energy", atoms)
    forces = calc.get_property("magnetic_forces", atoms)
    double = atoms.repeat((1, 2, 1))
    assert calc.get_property("energy", double) == pytest.approx(2 * energy, abs=1e-9)
    result = calc.get_property("magnetic_forces", double)
    np.testing.assert_allclose(result, np.tile(forces, (2, 1)), atol=1e-10)
