"""Room for neighbours: as many as ``sel`` are used, one more is an error."""

import numpy as np
import pytest
from dp_calc.models import load_model
from reference import DATA, Structure, evaluate


def star(symbols):
    """An atom, and others spread over a sphere of 4 Å around it."""
    n = len(symbols) - 1
    z = np.linspace(-0.99, 0.99, n)
    angle = np.pi * (3 - 5**0.5) * np.arange(n)
    ring = np.sqrt(1 - z * z)
    sphere = 4 * np.stack([ring * np.cos(angle), ring * np.sin(angle), z], axis=1)
    positions = np.concatenate([np.zeros((1, 3)), sphere])
    no_cell, no_pbc = np.zeros((3, 3)), np.zeros(3, dtype=bool)
    return Structure("star", tuple(symbols), positions, no_cell, no_pbc, {}, {})


@pytest.mark.parametrize("name", ["se_e2_a", "se_e2_a_twoside", "se_e2_r", "se_e3"])
def test_each_type_has_its_own_room(name):
    model = load_model(DATA / "classic" / f"{name}.pt")
    full = star(["Na", *["Cl", "Na"] * 26])
    assert np.abs(evaluate(model, full).forces).max() > 0
    crowded = star(["Na", *["Cl", "Na"] * 26, "Cl"])
    words = (
        r"atom 0 has 27 Cl neighbours within 4\.2 Å but the model has room for 26 \(sel\)"
    )
    with pytest.raises(ValueError, match=words):
        evaluate(model, crowded)


@pytest.mark.parametrize(("name", "room"), [("dpa1_strip_attn0", 52), ("se_e3_tebd", 40)])
def test_types_may_share_the_room(name, room):
    model = load_model(DATA / "classic" / f"{name}.pt")
    full = star(["Na", *["Cl"] * room])
    assert np.abs(evaluate(model, full).forces).max() > 0
    crowded = star(["Na", *["Cl"] * room, "Na"])
    with pytest.raises(ValueError, match=rf"atom 0 has {room + 1} neighbours within"):
        evaluate(model, crowded)
