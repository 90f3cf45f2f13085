"""Every option value of the DPA4 format against references of DeePMD-kit.

``tests/data/options/values.txt`` lists the values, ``COVERAGE.md`` beside it the files
that contain them. The files have few channels and random weights of full size, so that
every part of a model shows in its energy.
"""

import numpy as np
import pytest
import torch
from dp_calc.models import load_model
from option_facts import (
    COVERAGE,
    FOLDER,
    contains,
    coverage,
    facts_of_file,
    render,
    rows,
)
from reference import evaluate, structures

FILES = sorted(path.stem for path in FOLDER.glob("*.pt"))

# The reference rounds the matrices of product grids to float32 in float64 models too;
# here they are exact. Deviations of these two files: 5e-7 and 6e-8.
ROUNDED = 1e-6
ROUNDED_FILES = ["product_grid_nodes", "product_grid_stack"]


def relative(value, expected):
    """Largest deviation, of the largest entry or one."""
    return np.abs(value - expected).max() / max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("name", FILES)
def test_float64_agrees_to_rounding(name):
    model = load_model(FOLDER / f"{name}.pt", dtype=torch.float64)
    limit = ROUNDED if name in ROUNDED_FILES else 1e-9
    for structure in structures(name, FOLDER):
        result, expected = evaluate(model, structure), structure.expected
        assert relative(result.energies.sum(), expected["energy"]) < limit
        assert relative(result.energies, expected["energies"]) < limit
        assert relative(result.forces, expected["forces"]) < limit
        assert relative(result.virial, expected["virial"]) < limit
        if "force_mag" in expected:
            assert relative(result.magnetic_forces, expected["force_mag"]) < limit


@pytest.mark.parametrize("name", FILES)
def test_float32_agrees_within_its_precision(name):
    model = load_model(FOLDER / f"{name}.pt", dtype=torch.float32)
    for structure in structures(name, FOLDER):
        result, expected = evaluate(model, structure), structure.expected
        deviation = abs(result.energies.sum() - expected["energy"])
        assert deviation < 1e-5 * len(structure.symbols)
        assert relative(result.forces, expected["forces"]) < 2e-5


def test_every_option_value_is_in_a_file():
    assert [row for row, names in coverage().items() if not names] == []


def test_the_table_of_the_coverage_is_current():
    assert COVERAGE.read_text() == render()


def test_only_two_files_need_a_wider_limit():
    on_product_grids = [
        row for row in rows() if row[0] == "lebedev_quadrature" and "False, " in row[1]
    ]
    found = []
    for name in FILES:
        facts = facts_of_file(FOLDER / f"{name}.pt")
        if any(contains(facts, *row) for row in on_product_grids):
            found.append(name)
    assert found == ROUNDED_FILES
