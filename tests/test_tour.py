import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TOUR = Path(__file__).parents[1] / "examples" / "tour.ipynb"

PRINTED = [
    (r"192 atoms, (\S+) eV", -29943.88, 0.01),
    (r"kinetic energy varies by (\S+) eV", 0.698, 0.01),
    (r"total energy by (\S+) eV", 0.0094, 0.002),
    (r"(\S+) eV and \S+ Å³ per molecule", -0.69, 0.1),
    (r"46 molecules; the bond is (\S+) Å", 0.96, 0.021),
]
REFUSED = ("contains He", "Å apart", "its cell vector is zero")


def test_the_stored_notebook_has_no_outputs():
    cells = nbformat.read(TOUR, 4).cells
    assert all(not cell.get("outputs") for cell in cells)
    assert all(cell.get("execution_count") is None for cell in cells)


def test_the_tour(tmp_path):
    notebook = nbformat.read(TOUR, 4)
    where = {"metadata": {"path": tmp_path}}
    NotebookClient(notebook, timeout=600, resources=where).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [out.text for out in outputs if out.get("name") == "stderr"]
    assert sum("image/png" in out.get("data", {}) for out in outputs) == 4
    text = "".join(out.text for out in outputs if out.get("name") == "stdout")
    for pattern, expected, tolerance in PRINTED:
        found = re.search(pattern, text)
        assert found, pattern
        assert float(found[1]) == pytest.approx(expected, abs=tolerance)
    assert all(what in text for what in REFUSED)
    assert not list(tmp_path.iterdir())
