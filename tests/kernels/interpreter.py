"""Runs files of tests in Triton's interpreter, on the CPU."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest


def interpreted() -> bool:
    """Whether the kernels run in the interpreter; without Triton the test is skipped."""
    products = pytest.importorskip(
        "dp_calc.kernels.products", reason="needs the package triton"
    )
    return products.INTERPRETED


def check_in_interpreter(*files: Path) -> None:
    """Fail unless every test in the files passes there; none may be skipped."""
    if find_spec("triton") is None:
        pytest.skip("needs the package triton")
    import triton

    if _version(triton.__version__) < (3, 7) and _version(np.__version__) >= (2, 4):
        pytest.skip(
            "needs Triton 3.7 or above, or NumPy below 2.4: the interpreter of older "
            "ones cannot run a loop together"
        )
    # The interpreter is chosen when triton is imported, so it takes a new process.
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, *map(str, files)], env=environment, capture_output=True, text=True
    )
    summary = run.stdout[-6000:] + run.stderr[-2000:]
    assert run.returncode == 0, summary
    assert re.search(r"^[0-9]+ passed", run.stdout.splitlines()[-1]), summary
    assert "skipped" not in run.stdout, summary


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def round_rows_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round each row of a product as any other, as a GPU does.

    The interpreter leaves products to BLAS, where the place of a row in a tile matters.
    """

    def matmul(left, right, dtype):
        total = np.zeros((left.shape[0], right.shape[1]), dtype)
        for k in range(left.shape[1]):
            total += left[:, k, None].astype(dtype) * right[k].astype(dtype)
        return total

    monkeypatch.setattr(np, "matmul", matmul)
