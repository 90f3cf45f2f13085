"""Spins as virtual atoms, against stored references and by differences."""

import pytest
import torch
from checkpoints import Content
from dp_calc.models import EdgeList, InputSpec, UnsupportedOptionError, load_model
from dp_calc.models.dpa4.deepspin import DeepSpinModel
from reference import DATA, edges, evaluate, structures

STRUCTURES = structures("deepspin")


@pytest.fixture(scope="module")
def model():
    return load_model(DATA / "deepspin.pt", dtype=torch.float64)


def of(model, structure):
    types = torch.tensor([model.type_map.index(s) for s in structure.symbols])
    return types, edges(structure, model.rcut), structure.conditions["spin"]


def by_name(name):
    return next(s for s in STRUCTURES if s.name == name)


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.name)
def test_agrees_with_the_reference(model, structure):
    result, expected = evaluate(model, structure), structure.expected
    assert abs(result.energies - expected["energies"]).max() < 1e-9
    assert abs(result.forces - expected["forces"]).max() < 1e-9
    assert abs(result.virial - expected["virial"]).max() < 1e-9
    assert abs(result.magnetic_forces - expected["force_mag"]).max() < 1e-9
    result = evaluate(load_model(DATA / "deepspin.pt"), structure)
    assert abs(result.forces - expected["forces"]).max() < 2e-5
    assert abs(result.magnetic_forces - expected["force_mag"]).max() < 2e-5


def test_says_what_it_is_and_reads(model):
    assert isinstance(model, DeepSpinModel)
    assert model.type_map == ("H", "C", "O", "Na", "Cl", "Cu")
    assert model.inputs == (InputSpec("spin", 3, per_atom=True, required=True),)


def test_magnetic_forces_are_differences_of_energies(model):
    structure = by_name("molecule")
    types, graph, spin = of(model, structure)
    expected = structure.expected["force_mag"]
    atom = int(abs(expected).max(1).argmax())
    for axis in range(3):
        step = torch.zeros_like(spin)
        step[atom, axis] = 1e-4
        ends = [
            model(types, graph, {"spin": s}).sum() for s in (spin + step, spin - step)
        ]
        assert float(ends[1] - ends[0]) / 2e-4 == pytest.approx(
            expected[atom, axis], abs=1e-6
        )


def test_spins_of_atoms_without_one_have_no_effect(model):
    types, graph, spin = of(model, by_name("dense_mix"))
    other = torch.where(model.magnetic[types][:, None], spin, torch.nan)
    change = model(types, graph, {"spin": torch.nan_to_num(other, nan=7.0)})
    assert (change == model(types, graph, {"spin": spin})).all()


def test_edges_beyond_the_cutoff_have_no_effect(model):
    structure = by_name("molecule")
    types, graph, spin = of(model, structure)
    energies = model(types, graph, {"spin": spin})
    longer = model(types, edges(structure, model.rcut + 1.0), {"spin": spin})
    assert (longer - energies).abs().max() < 1e-12


def test_spins_are_required(model):
    types, graph, _ = of(model, by_name("dimer"))
    for conditions in (None, {}):
        with pytest.raises(ValueError, match="needs the spin of every atom"):
            model(types, graph, conditions)


def test_neither_atoms_nor_neighbours_are_needed(model):
    none = torch.empty(0, dtype=torch.int64)
    graph = EdgeList.from_sorted(none, none, torch.empty(0, 3, dtype=torch.float64), 0)
    assert model(none, graph, {"spin": torch.empty(0, 3)}).shape == (0,)


def test_more_neighbours_than_the_format_counts_are_refused(tmp_path, model):
    structure = by_name("dense_mix")
    types, graph, spin = of(model, structure)
    most = int(graph.row_ptr.diff().max())
    content = Content("deepspin")
    for sel in (most, [most - 10, 10]):
        content.params["descriptor"]["sel"] = sel
        fits = load_model(content.save(tmp_path / "sel.pt"), dtype=torch.float64)
        energies = fits(types, graph, {"spin": spin}).numpy()
        assert abs(energies - structure.expected["energies"]).max() < 1e-9
    content.params["descriptor"]["sel"] = most - 1
    crowded = load_model(content.save(tmp_path / "sel.pt"))
    with pytest.raises(
        ValueError, match=f"has {most} neighbours within 4.6 Å, .* {most - 1}"
    ):
        crowded(types, graph, {"spin": spin})


def test_embeddings_are_those_of_the_real_atoms(model):
    structure = by_name("molecule")
    types, graph, spin = of(model, structure)
    hidden = model.last_hidden(types, graph, {"spin": spin})
    energies = model.fitting.output_layer(hidden)[:, 0] + model.out_bias[0, types, 0]
    energies = (energies + model.fitting_bias[types, 0]).numpy()
    assert abs(energies - structure.expected["energies"]).max() < 1e-9
    assert model.descriptors(types, graph, {"spin": spin}).shape == (len(types), 6)


@pytest.mark.parametrize(
    "spin",
    [
        {"use_spin": [0, 4, 5]},
        {"use_spin": ["Cl", "H", "Cu"]},
        {"virtual_scale": [0.3, 0.45, 0.25]},
        {"scheme": "DeepSpin"},
        {"scheme": None},
    ],
    ids=str,
)
def test_other_forms_of_the_same_options(tmp_path, spin):
    content = Content("deepspin")
    content.params["spin"].update(spin)
    if spin == {"scheme": None}:
        del content.params["spin"]["scheme"]
    model = load_model(content.save(tmp_path / "form.pt"), dtype=torch.float64)
    structure = by_name("dimer")
    difference = evaluate(model, structure).energies - structure.expected["energies"]
    assert abs(difference).max() < 1e-9


def test_one_distance_for_all_types(tmp_path):
    results = []
    for scale in (0.3, [0.3] * 6):
        content = Content("deepspin")
        content.params["spin"]["virtual_scale"] = scale
        model = load_model(content.save(tmp_path / "scale.pt"), dtype=torch.float64)
        results.append(evaluate(model, by_name("dimer")).energies)
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("scheme", "vector"),
        ("use_spin", None),
        ("use_spin", "Fe"),
        ("use_spin", [True, False]),
        ("use_spin", [True, 0, 1, 2, 3, 4]),
        ("use_spin", [6]),
        ("use_spin", [-1]),
        ("use_spin", ["Fe"]),
        ("use_spin", [None]),
        ("use_spin", [[0]]),
        ("virtual_scale", None),
        ("virtual_scale", "0.3"),
        ("virtual_scale", [0.3, 0.2]),
        ("virtual_scale", [0.3, None, 0.2]),
    ],
)
def test_ill_formed_options_are_refused_by_name(tmp_path, option, value):
    content = Content("deepspin")
    content.params["spin"][option] = value
    with pytest.raises(UnsupportedOptionError, match=f"spin option {option}="):
        load_model(content.save(tmp_path / "bad.pt"))


@pytest.mark.parametrize("sel", ["auto", 0, [1.5], None])
def test_ill_formed_numbers_of_neighbours_are_refused(tmp_path, sel):
    content = Content("deepspin")
    content.params["descriptor"]["sel"] = sel
    with pytest.raises(UnsupportedOptionError, match="descriptor option sel="):
        load_model(content.save(tmp_path / "bad.pt"))
