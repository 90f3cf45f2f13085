"""Runs the tests of the Triton path on the CPU, in Triton's interpreter."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

TESTS = Path(__file__).with_name("test_triton.py")


def _version(text):
    return tuple(int(part) for part in text.split(".")[:2])


def test_triton_path_in_the_interpreter():
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
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    summary = run.stdout[-6000:] + run.stderr[-2000:]
    assert run.returncode == 0, summary
    assert re.search(r"^[0-9]+ passed", run.stdout.splitlines()[-1]), summary
    assert "skipped" not in run.stdout, summary
