"""Sections F and G: compiled code. Each program below is a process with its own cache."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from reports import COPPER, TINY

import dp_calc.compile_cache
from dp_calc import DP

PROGRAM = """
import json, logging, sys, time, warnings
import numpy as np
from ase import Atoms, units
from ase.build import bulk
from ase.md.langevin import Langevin
from torch._dynamo.utils import counters
from dp_calc import DP

model, how = sys.argv[1:]
logged = []
logging.getLogger("dp_calc").setLevel(logging.INFO)
handler = logging.Handler()
handler.emit = lambda record: logged.append(record.getMessage())
logging.getLogger("dp_calc").addHandler(handler)

def built():
    return sum(counters["inductor"].values()) + sum(counters["aot_autograd"].values())

def evaluate(atoms, calc):
    atoms.calc = calc
    start = time.perf_counter()
    energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    seconds = time.perf_counter() - start
    stress = atoms.get_stress() if atoms.pbc.any() else np.zeros(6)
    return seconds, [energy, *forces.ravel(), *stress]

def structures():
    for n in ((1, 1, 1), (2, 1, 1), (31, 1, 1), (2, 4, 4), (33, 1, 1), (4, 4, 4)):
        yield bulk("Cu") * n
    yield Atoms("Cu")
    yield Atoms("CuOH", [[0, 0, 0], [0, 0, 50], [0, 50, 0]])
    yield bulk("NaCl", "rocksalt", a=5.6) * (2, 2, 2)

report = {}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    calc, plain = DP(model, compile=True), DP(model, compile=False)
    first = bulk("Cu") * (2, 2, 2)
    report["seconds"], results = evaluate(first, calc)
    report["start"] = results, evaluate(first, plain)[1]
report["warnings"] = [  # not those of PyTorch about itself
    str(w.message) for w in caught if not issubclass(w.category, DeprecationWarning)
]
report["built at first"] = built()
report["describe"] = calc.settings.describe(calc.model)
if how == "long":
    exact = DP(model, compile=False, dtype="float64")
    report["all"] = []
    for atoms in structures():
        atoms.rattle(0.05, seed=1)
        report["all"].append([evaluate(atoms, c)[1] for c in (calc, plain, exact)])
    atoms = bulk("Cu", cubic=True) * (2, 2, 2)
    atoms.calc, sizes = calc, []
    calc.model.register_forward_pre_hook(lambda m, args: sizes.append(args[1].n_edges))
    Langevin(atoms, 2 * units.fs, temperature_K=1500, friction=0.1,
             rng=np.random.default_rng(0)).run(50)
report["built in all"] = built()
report["logged"] = logged
print(json.dumps(report))
"""


def run(folder, how="short", **environment):
    """What the program reports."""
    path = folder / "program.py"
    path.write_text(PROGRAM)
    environment = {"DP_CACHE_DIR": str(folder / "cache"), **environment}
    result = subprocess.run(
        [sys.executable, path, TINY, how],
        env=os.environ
        | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def cold(folder):
    """Report of the first process, which compiles."""
    return run(folder, "long")


@pytest.fixture(scope="module")
def warm(folder, cold):
    """Report of the second process, which finds compiled code."""
    return run(folder)


@pytest.mark.case("F7")
def test_compiled_code_gives_the_same_numbers(cold):
    for compiled, plain, exact in cold["all"]:
        scale = max(1.0, np.abs(exact[1:]).max())
        n_atoms = (len(exact) - 7) / 3
        for results in (compiled, plain):
            assert abs(results[0] - exact[0]) < 1e-5 * n_atoms
            np.testing.assert_allclose(results[1:], exact[1:], rtol=0, atol=2e-6 * scale)


@pytest.mark.case("G1")
def test_nothing_is_compiled_again_while_sizes_change(cold):
    assert cold["built at first"] > 0
    assert cold["built in all"] == cold["built at first"]


@pytest.mark.case("G2")
def test_compiled_code_is_used_and_the_calculator_says_so(cold):
    assert cold["warnings"] == []
    assert "ompiled" in cold["describe"]


@pytest.mark.case("G7")
def test_one_line_is_logged_before_the_long_wait(cold):
    assert ["compiling" in line for line in cold["logged"]] == [True]


@pytest.mark.case("G7")
def test_the_second_process_does_not_wait(cold, warm):
    assert warm["seconds"] < cold["seconds"] / 3
    assert not any("compiling" in line for line in warm["logged"])
    assert warm["start"][0] == cold["start"][0]


@pytest.mark.case("G3")
def test_without_compiler_and_cache_the_numbers_come_uncompiled(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    no_folder = str(tmp_path / "file" / "cache")
    report = run(tmp_path, PATH=str(tmp_path / "empty"), CXX="", DP_CACHE_DIR=no_folder)
    np.testing.assert_allclose(*report["start"], rtol=0, atol=1e-5)
    assert len(report["warnings"]) == 1
    assert "compile=False" in report["warnings"][0]
    assert any("set DP_CACHE_DIR" in line for line in report["logged"])


@pytest.mark.case("G8")
def test_damaged_or_foreign_compiled_code_is_not_run(folder, warm, tmp_path):
    files = [path for path in (folder / "cache").rglob("*") if path.is_file()]
    assert files
    for path in filter(os.path.getsize, files):
        copy = tmp_path / "cache" / path.relative_to(folder / "cache")
        copy.parent.mkdir(parents=True, exist_ok=True)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        copy.write_bytes(content)
    (tmp_path / "empty").mkdir()
    report = run(tmp_path, PATH=str(tmp_path / "empty"), CXX="")
    np.testing.assert_allclose(*report["start"], rtol=0, atol=1e-5)
    assert any("cannot be read" in line for line in report["logged"])


@pytest.mark.case("G8")
@pytest.mark.parametrize("package", ["torch", "triton", "dp_calc"])
def test_code_of_another_version_or_device_is_not_found(package, monkeypatch, tmp_path):
    monkeypatch.setenv("DP_CACHE_DIR", str(tmp_path))
    model, module = DP(TINY, device="cpu").model, dp_calc.compile_cache
    caches = [module.open_cache(model)]
    caches[0].store("piece", "code", [torch.ones(2)])
    known = module.version
    with monkeypatch.context() as patch:
        patch.setattr(module, "version", lambda p: "0.1" if p == package else known(p))
        caches.append(module.open_cache(model))
    caches.append(module.open_cache(DP(COPPER, device="cpu").model))
    caches.append(module.open_cache(model))
    found = [c.load("piece", {"code": sum}, model.device) is not None for c in caches]
    assert found == [True, False, False, True]
