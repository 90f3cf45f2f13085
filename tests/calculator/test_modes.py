"""Modes of the caller's program do not reach the numbers."""

import numpy as np
import pytest
import torch
from ase.build import molecule
from ase.neighborlist import NeighborList

from dp_calc import DP, load_model
from dp_calc.data import water_model


def test_autocast_changes_nothing():
    water = molecule("H2O")
    calc = DP(water_model(), device="cpu")
    expected = calc.get_property("forces", water)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = DP(water_model(), device="cpu").get_property("forces", water)
    np.testing.assert_array_equal(result, expected)


def test_a_huge_cohort_is_no_larger_than_the_structure():
    water = molecule("H2O")
    calc = DP(water_model(), device="cpu", backward="stream", cohort_edges=16 * 10**9)
    native = DP(water_model(), device="cpu", backward="native")
    np.testing.assert_allclose(
        calc.get_property("forces", water),
        native.get_property("forces", water),
        atol=1e-5,
    )


def test_neighbour_lists_with_whole_numbers_for_radii():
    calc = DP(water_model(), neighbor_list=NeighborList([3] * 3, skin=0), device="cpu")
    assert np.isfinite(calc.get_property("energy", molecule("H2O")))
    with pytest.raises(ValueError, match="finds pairs up to nan"):
        DP(water_model(), neighbor_list=NeighborList([np.nan] * 3), device="cpu")


def test_a_neighbour_list_that_was_shrunk_later_is_refused():
    neighbours = NeighborList([3.0] * 3, bothways=True)
    calc = DP(water_model(), neighbor_list=neighbours, device="cpu")
    neighbours.nl.cutoffs[:] = 1.0
    with pytest.raises(ValueError, match="finds pairs up to"):
        calc.get_property("energy", molecule("H2O"))


def test_load_model_takes_names_and_refuses_in_a_sentence():
    model = load_model(water_model(), device="cpu", dtype="float64")
    assert model.dtype == torch.float64
    with pytest.raises(ValueError, match='device "cuda:77" is not available'):
        load_model(water_model(), device="cuda:77")
    with pytest.raises(TypeError, match="not a Linear"):
        DP(torch.nn.Linear(2, 2))
