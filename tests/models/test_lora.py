"""Adapters of fine-tuned checkpoints, folded into the weights."""

import pytest
import torch
from checkpoints import Content
from dp_calc.models import load_model
from dp_calc.models.lora import fold_adapters
from reference import DATA, evaluate, structures

ADAPTER = ("A_by_l", "B_by_l", "A_m0", "B_m0", "lora_scaling")


@pytest.mark.parametrize("structure", structures("lora"), ids=lambda s: s.name)
def test_a_fine_tuned_model_agrees_with_the_reference(structure):
    expected = structure.expected
    result = evaluate(load_model(DATA / "lora.pt", dtype=torch.float64), structure)
    assert abs(result.energies - expected["energies"]).max() < 1e-9
    assert abs(result.forces - expected["forces"]).max() < 1e-9
    assert abs(result.virial - expected["virial"]).max() < 1e-9
    result = evaluate(load_model(DATA / "lora.pt"), structure)
    assert abs(result.forces - expected["forces"]).max() < 2e-5


def test_the_model_has_the_precision_of_the_checkpoint_and_no_adapters():
    model = load_model(DATA / "lora.pt")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not any(name.endswith(ADAPTER) for name in model.state_dict())


def test_adapters_matter(tmp_path):
    content = Content("lora")
    for key in [k for k in content.state if k.endswith(ADAPTER) or ".A_m." in k
                or ".B_m." in k]:  # fmt: skip
        del content.state[key]
    model = load_model(content.save(tmp_path / "without.pt"), dtype=torch.float64)
    structure = structures("lora")[1]
    difference = evaluate(model, structure).energies - structure.expected["energies"]
    assert abs(difference).max() > 1e-2


def so3(scaling=None, rank=2):
    tensors = {
        "map.weight": torch.randn(3, 4, 5),
        "map.A_by_l": torch.randn(3, rank, 4),
        "map.B_by_l": torch.randn(3, 5, rank),
        "other.weight": torch.randn(2),
    }
    return tensors if scaling is None else {**tensors, "map.lora_scaling": scaling}


@pytest.mark.parametrize("scaling", [None, torch.tensor(0.5), torch.tensor([3.0])])
def test_maps_of_degrees(scaling):
    tensors = so3(scaling)
    before = {k: v.clone() for k, v in tensors.items()}
    folded = fold_adapters(tensors, "file")
    assert set(folded) == {"map.weight", "other.weight"}
    assert folded["other.weight"] is tensors["other.weight"]
    factor = 1.0 if scaling is None else scaling.item()
    w, a, b = (before["map." + k].double() for k in ("weight", "A_by_l", "B_by_l"))
    expected = w + factor * torch.einsum("lor,lri->lio", b, a)
    assert (folded["map.weight"] - expected).abs().max() < 1e-14
    assert all((tensors[k] == before[k]).all() for k in before)


def test_maps_of_orders():
    tensors = {"s.lora_scaling": torch.tensor(0.25)}
    for name, n_in, n_out in (
        ("m0", 6, 8),
        ("m.0", 4, 12),
        ("m.1", 2, 6),
        ("m.10", 3, 3),
    ):
        tensors["s.weight_" + name] = torch.randn(n_in, n_out)
        tensors["s.A_" + name] = torch.randn(2, n_in)
        tensors["s.B_" + name] = torch.randn(n_out, 2)
    folded = fold_adapters(tensors, "file")
    assert set(folded) == {"s.weight_m0", "s.weight_m.0", "s.weight_m.1", "s.weight_m.10"}
    for name in ("m0", "m.0", "m.1", "m.10"):
        w, a, b = (tensors[f"s.{k}_{name}"].double() for k in ("weight", "A", "B"))
        assert (folded["s.weight_" + name] - (w + 0.25 * (b @ a).T)).abs().max() < 1e-14


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("map.weight"), "adapts no weight"),
        (lambda t: t.pop("map.B_by_l"), "adapts no weight"),
        (lambda t: t.pop("map.A_by_l"), "map.B_by_l is incomplete"),
        (lambda t: t.update({"x.lora_scaling": torch.ones(())}), "is incomplete"),
        (lambda t: t.update({"map.lora_scaling": torch.ones(2)}), "does not fit"),
        (lambda t: t.update({"map.A_by_l": torch.ones(3, 2, 3)}), "does not fit"),
        (lambda t: t.update({"map.A_by_l": torch.ones(3, 1, 4)}), "do not fit"),
        (lambda t: t.update({"map.A_by_l": torch.ones(1, 2, 4)}), "do not fit"),
        (lambda t: t.update({"map.A_by_l": torch.ones(2, 4)}), "does not fit"),
        (lambda t: t.update({"map.weight": torch.ones(3)}), "does not fit"),
    ],
)
def test_adapters_that_fit_nothing_are_refused(change, message):
    tensors = so3()
    change(tensors)
    with pytest.raises(ValueError, match=message):
        fold_adapters(tensors, "file")
