"""Section B: copies, processes, what a whole program shares."""

import copy
import gc
import os
import pickle
import random
import re
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from ase.build import bulk
from reports import COPPER, TINY, evaluate, needs_cuda

from dp_calc import DP

README = Path(__file__).parents[2] / "README.md"


def run(code, *arguments, **environment):
    """Output of a Python program in a process of its own."""
    command = (
        [sys.executable, code] if isinstance(code, Path) else [sys.executable, "-c", code]
    )
    result = subprocess.run(
        [*command, *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.case("B1")
@pytest.mark.parametrize("evaluated", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_pickle_is_the_same_calculator(dtype, evaluated):
    calc, atoms = DP(COPPER, dtype=dtype, backward="stream"), bulk("Cu") * (2, 1, 1)
    atoms.rattle(0.1, seed=0)
    if evaluated:
        evaluate(bulk("Cu"), calc)
    other = pickle.loads(pickle.dumps(calc))
    assert other.model.dtype == calc.model.dtype
    assert other.device == calc.device
    assert other.settings == calc.settings
    for one, two in zip(evaluate(atoms, calc), evaluate(atoms, other), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.case("B2")
def test_copies_share_the_weights_and_nothing_else():
    calc, atoms = DP(COPPER), bulk("Cu") * (2, 1, 1)
    copies = [copy.deepcopy(calc) for _ in range(8)]
    expected, results = evaluate(atoms.copy(), calc)[0], calc.results
    pointers = {p.data_ptr() for p in calc.model.parameters()}
    for n, other in enumerate(copies):
        moved = atoms.copy()
        moved.rattle(0.01 * (n + 1), seed=n)
        assert evaluate(moved, other)[0] != expected
        assert {p.data_ptr() for p in other.model.parameters()} == pointers
    assert calc.results is results
    assert calc.results["energy"] == expected
    assert len({c.results["energy"] for c in copies}) == 8


@pytest.mark.case("B2")
@pytest.mark.gpu
@needs_cuda
def test_copies_take_no_memory_of_the_gpu():
    calc, atoms = DP(COPPER, device="cuda"), bulk("Cu") * (3, 3, 3)
    evaluate(atoms.copy(), calc)
    before = torch.cuda.memory_allocated()
    copies = [copy.deepcopy(calc) for _ in range(8)]
    for other in copies:
        evaluate(atoms.copy(), other)
    weights = sum(p.numel() * p.element_size() for p in calc.model.parameters())
    # Each copy may keep its own neighbours, but no weights.
    assert torch.cuda.memory_allocated() - before < 8 * weights / 4


PROGRAM = """
import multiprocessing, sys
import torch
from ase.build import bulk
from dp_calc import DP

def energy(calc):
    atoms = bulk("Cu")
    atoms.calc = DP(sys.argv[1]) if calc is None else calc
    return atoms.get_potential_energy()

if __name__ == "__main__":
    torch.set_num_threads(2)
    calc = DP(sys.argv[1])
    expected = energy(calc)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("spawn", pool.map(energy, [None, calc]) == 2 * [expected])
    calc.reset()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        for argument in (None, calc):
            try:
                pool.map_async(energy, [argument]).get(60)
            except RuntimeError as error:
                print("fork", error)
"""


@pytest.mark.case("B3")
def test_spawned_workers_compute_and_forked_ones_say_spawn(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    lines = run(path, TINY).splitlines()
    assert lines[0] == "spawn True"
    assert len(lines) == 3
    for line in lines[1:]:
        assert re.match(r'fork this process was forked .*get_context\("spawn"\)', line)


@pytest.mark.case("B3")
def test_importing_starts_neither_torch_nor_cuda():
    code = (
        "import sys, dp_calc; assert 'torch' not in sys.modules; "
        "from dp_calc import DP, load_model, evaluate; import torch; "
        "print(torch.cuda.is_initialized())"
    )
    assert run(code).strip() == "False"


@pytest.mark.case("B4")
def test_the_number_of_threads_is_left_alone():
    code = (
        "import os, sys, torch\n"
        "def state():\n"
        "    threads = torch.get_num_threads(), torch.get_num_interop_threads()\n"
        "    return threads, dict(os.environ)\n"
        "before = state()\n"
        "from ase.build import bulk; from dp_calc import DP\n"
        "atoms = bulk('Cu'); atoms.calc = DP(sys.argv[1]); atoms.get_forces()\n"
        "assert state() == before\n"
        "print(torch.get_num_threads())\n"
    )
    assert run(code, TINY, OMP_NUM_THREADS="1").strip() == "1"


@pytest.mark.case("B4")
def test_the_readme_says_how_to_share_cores_between_processes():
    assert "OMP_NUM_THREADS=1" in README.read_text(encoding="utf-8")


def _state_of_the_program():
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "matmul": torch.get_float32_matmul_precision(),
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "torch random": torch.get_rng_state().tolist(),
        "numpy random": str(np.random.get_state()),
        "python random": random.getstate(),
        "numpy errors": np.geterr(),
        "environment": dict(os.environ),
        "directory": os.getcwd(),
    }


def _succeed():
    evaluate(bulk("Cu") * (2, 1, 1), DP(COPPER))


def _fail():
    with pytest.raises(ValueError, match="contains Au"):
        evaluate(bulk("Au"), DP(COPPER))


def _fail_to_load():
    with pytest.raises(FileNotFoundError):
        DP("no such model.pt")


def _second_derivatives():
    DP(COPPER).get_hessian(bulk("Cu"), progress=False)


@pytest.mark.case("B6")
@pytest.mark.parametrize("action", [_succeed, _fail, _fail_to_load, _second_derivatives])
@pytest.mark.parametrize("grad", [True, False])
def test_nothing_of_the_program_changes(action, grad):
    with torch.set_grad_enabled(grad):
        before = _state_of_the_program()
        action()
        assert _state_of_the_program() == before


@pytest.mark.case("B6")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_state_of_the_program_does_not_reach_the_results(dtype, monkeypatch):
    atoms = bulk("Cu") * (2, 1, 1)
    atoms.rattle(0.1, seed=0)
    energy, forces = evaluate(atoms.copy(), DP(COPPER, dtype=dtype))
    for default in (torch.float64, torch.float16):
        torch.set_default_dtype(default)
        try:
            other = evaluate(atoms.copy(), DP(COPPER, dtype=dtype))
        finally:
            torch.set_default_dtype(torch.float32)
        assert other[0] == energy
        np.testing.assert_array_equal(other[1], forces)
    for state in (torch.device("meta"), torch.no_grad(), torch.inference_mode()):
        with state:
            other = evaluate(atoms.copy(), DP(COPPER, dtype=dtype))
        assert other[0] == energy
        np.testing.assert_array_equal(other[1], forces)


@pytest.mark.case("B8")
def test_a_deleted_calculator_is_gone():
    for _ in range(3):
        calc, atoms = DP(COPPER), bulk("Cu")
        evaluate(atoms, calc)
        model, weight = (
            weakref.ref(calc.model),
            weakref.ref(next(calc.model.parameters())),
        )
        gc.disable()
        try:
            del calc, atoms
            assert model() is None
            assert weight() is None
        finally:
            gc.enable()


@pytest.mark.case("B8")
@pytest.mark.gpu
@needs_cuda
def test_deleted_calculators_leave_the_gpu():
    held = []
    for _ in range(20):
        calc = DP(COPPER, device="cuda")
        evaluate(bulk("Cu"), calc)
        del calc
        held.append(torch.cuda.memory_allocated())
    assert held[-1] == held[1]
