"""The collection is complete: every reported failure has a test marked with it."""

import ast
from pathlib import Path

CASES = {
    "A": [1, 2, 3, 5, 6, 7, 8],
    "B": [1, 2, 3, 4, 6, 8],
    "C": [1, 3, 4, 5, 6, 8, 9, 14, 15, 16, 17, 18, 19],
    "D": [1, 2, 4, 5, 6, 7, 8],
    "E": [1, 2, 5, 6],
    "F": [1, 2, 3, 6, 7],
    "G": [1, 2, 3, 4, 5, 6, 7, 8, 9],
    "H": [1, 3, 4, 5, 6, 7, 8],
}
FOLDER = Path(__file__).parent


def marked_cases(path):
    """Names given to ``pytest.mark.case`` above the test functions of a file."""
    tests = [
        node
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    calls = [d for test in tests for d in test.decorator_list if isinstance(d, ast.Call)]
    marks = [call for call in calls if ast.unparse(call.func) == "pytest.mark.case"]
    return [argument.value for mark in marks for argument in mark.args]


def test_every_case_has_a_test():
    expected = {f"{letter}{n}" for letter, numbers in CASES.items() for n in numbers}
    found = {case for path in FOLDER.glob("test_*.py") for case in marked_cases(path)}
    assert len(expected) == 58
    assert found == expected
