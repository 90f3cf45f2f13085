"""Section H: model choice, devices, safety."""

import contextlib
import os
import pickle
import subprocess
import sys
import warnings
from importlib.metadata import entry_points

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk, molecule
from ase.calculators.calculator import (
    external_calculators,
    get_calculator_class,
    register_calculator_class,
)
from checkpoints import Content, multi_task
from reports import (
    CHARGED,
    COPPER,
    DATA,
    WATER,
    evaluate,
    evaluations,
    needs_cuda,
    needs_two_gpus,
)

from dp_calc import DP, load_model


@pytest.mark.case("H1")
@pytest.mark.parametrize("number", [118, 79, 0, 300, -1])
def test_an_element_that_the_model_does_not_know_is_named(number):
    calc, atoms = DP(COPPER), bulk("Cu") * (2, 1, 1)
    energy = evaluate(atoms, calc)[0]
    atoms.numbers[1] = number  # in place: nobody is told
    symbol = {118: "Og", 79: "Au", 0: "X"}.get(number, f"atomic number {number}")
    for getter in (atoms.get_potential_energy, atoms.get_forces, atoms.get_stress):
        with pytest.raises(ValueError, match=f"{symbol}, .* H, C, O, Na, Cl, Cu$"):
            getter()
    atoms.numbers[1] = 29
    assert atoms.get_potential_energy() == energy


@pytest.mark.case("H1")
def test_ghost_atoms_are_not_ignored():
    with pytest.raises(ValueError, match="contains X, which this model does not know"):
        evaluate(Atoms("X"), DP(COPPER))
    with pytest.raises(ValueError, match="contains X"):
        evaluate(Atoms("CuX", [[0, 0, 0], [0, 0, 3]]), DP(COPPER))


@pytest.fixture
def two_heads(tmp_path):
    content = multi_task({"Water": Content("zero_block"), "Metals": Content("plain")})
    return content.save(tmp_path / "two.pt")


@pytest.mark.case("H3")
@pytest.mark.parametrize("head", [None, "water2", "Metal", ""])
def test_no_branch_is_picked_silently(two_heads, head):
    with pytest.raises(ValueError, match=r"(?i)water.*metals|metals.*water"):
        DP(two_heads, head=head)


@pytest.mark.case("H3")
def test_a_branch_is_picked_by_its_name(two_heads):
    atoms = bulk("Cu")
    energies = [evaluate(atoms, DP(two_heads, head=h))[0] for h in ("Water", "Metals")]
    singles = [evaluate(atoms, DP(DATA / f"{n}.pt"))[0] for n in ("zero_block", "plain")]
    assert energies == singles


@pytest.mark.case("H3")
def test_a_file_without_branches_takes_no_head():
    with pytest.raises(ValueError, match="head"):
        DP(COPPER, head="x")


class _Command:
    def __reduce__(self):
        return os.system, ("touch pwned",)


def _plain_pickle(path):
    path.write_bytes(pickle.dumps(_Command()))


def _inside_a_checkpoint(path):
    content = torch.load(COPPER, weights_only=True)
    content["model"]["_extra_state"]["model_params"]["descriptor"]["note"] = _Command()
    torch.save(content, path)


def _old_format(path):
    torch.save({"model": _Command()}, path, _use_new_zipfile_serialization=False)


@pytest.mark.case("H4")
@pytest.mark.parametrize("write", [_plain_pickle, _inside_a_checkpoint, _old_format])
def test_a_file_with_a_command_in_it_is_refused_and_runs_nothing(
    write, tmp_path, monkeypatch
):
    path = tmp_path / "model.pt"
    write(path)
    monkeypatch.chdir(tmp_path)
    for load in (DP, load_model):
        with pytest.raises(ValueError, match=r"model\.pt"):
            load(path)
    assert not (tmp_path / "pwned").exists()
    with contextlib.suppress(RuntimeError):
        torch.load(path, weights_only=False)  # the trap works
    assert (tmp_path / "pwned").exists()


@pytest.mark.case("H4")
@pytest.mark.parametrize(
    "params", [None, [], "dpa4", {"type_map": 3}, {"descriptor": [1] * 10}]
)
def test_settings_of_the_wrong_kind_in_a_file_get_a_sentence(params, tmp_path):
    content = torch.load(COPPER, weights_only=True)
    content["model"]["_extra_state"]["model_params"] = params
    torch.save(content, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"model\.pt"):
        DP(tmp_path / "model.pt")


@pytest.mark.case("H5")
@pytest.mark.parametrize(
    ("info", "sentence"),
    [
        ({}, r'set atoms.info\["charge"\] and atoms.info\["spin"\]'),
        ({"charge": 1}, r'without atoms.info\["spin"\]'),
        ({"spin": 1}, r'without atoms.info\["charge"\]'),
        ({"charge": 0.5, "spin": 1}, "must be a whole number"),
        ({"charge": 1000, "spin": 1}, "from -100 to 99"),
        ({"charge": 0, "spin": 0}, "at least 1"),
        ({"charge": "1", "spin": 1}, "must hold real numbers"),
        ({"charge": np.nan, "spin": 1}, "must hold finite numbers"),
        ({"charge_spin": [0]}, "has the shape"),
        ({"charge_spin": [0, 1], "charge": 2, "spin": 1}, "remove one of them"),
    ],
)
def test_a_state_of_charge_that_is_none_gets_a_sentence(info, sentence):
    calc, atoms = DP(CHARGED), molecule("H2O")
    atoms.info.update(info)
    passes = evaluations(calc)
    with pytest.raises(ValueError, match=sentence):
        evaluate(atoms, calc)
    assert not passes


@pytest.mark.case("H5")
def test_every_way_to_write_a_state_of_charge_means_the_same():
    energies = set()
    for info in (
        {"charge": 1, "spin": 2},
        {"charge": 1.0, "spin": 2.0},
        {"charge": np.int32(1), "spin": np.array([2])},
        {"charge_spin": [1, 2]},
        {"charge_spin": np.array([[1.0, 2.0]])},
    ):
        atoms = molecule("H2O")
        atoms.info.update(info)
        energies.add(evaluate(atoms, DP(CHARGED))[0])
    assert len(energies) == 1


@pytest.mark.case("H5")
def test_a_charge_that_is_not_read_causes_one_warning():
    calc, atoms = DP(WATER), molecule("H2O")
    energy = evaluate(atoms, DP(WATER))[0]
    atoms.info.update(charge=1, spin=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            atoms.rattle(1e-3)
            evaluate(atoms, calc)
        assert evaluate(molecule("H2O"), calc)[0] == energy
    assert len([w for w in caught if "does not read" in str(w.message)]) == 1


@pytest.mark.case("H6")
@pytest.mark.gpu
@needs_two_gpus
def test_the_second_gpu_alone_is_used():
    code = (
        "import torch; from ase.build import bulk; from dp_calc import DP; "
        f"c = DP({str(COPPER)!r}, device='cuda:1'); a = bulk('Cu') * (3, 3, 3); "
        "a.calc = c; a.get_forces(); "
        "assert torch.cuda.memory_allocated(0) == 0; "
        "assert torch.cuda.memory_allocated(1) > 0; "
        "assert torch.cuda.current_device() == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.case("H6")
@pytest.mark.gpu
@needs_two_gpus
def test_two_gpus_take_turns():
    crystals = [bulk("Cu") * (n, n, n) for n in (1, 2, 3)]
    calcs = [DP(COPPER, device=f"cuda:{n}") for n in (0, 1)]
    assert [str(c.device) for c in calcs] == ["cuda:0", "cuda:1"]
    for _ in range(3):
        for crystal in crystals:
            crystal.rattle(0.01, rng=np.random.default_rng(0))
            one, two = (evaluate(crystal, calc) for calc in calcs)
            assert one[0] == pytest.approx(two[0], rel=0, abs=1e-6 * len(crystal))
            np.testing.assert_allclose(one[1], two[1], rtol=0, atol=1e-5)
    assert torch.cuda.current_device() == 0


@pytest.mark.case("H6")
@pytest.mark.gpu
@needs_cuda
def test_cuda_without_a_number_is_the_current_device():
    assert DP(COPPER, device="cuda").device == torch.device("cuda:0")
    assert DP(COPPER).device == torch.device("cuda:0")


@pytest.mark.case("H6")
@pytest.mark.parametrize("device", ["cuda:77", "gpu", "cuda:", "cuda:-1", "xpu", 77, ""])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(device):
    with pytest.raises(ValueError, match="cpu") as caught:
        DP(COPPER, device=device)
    assert "\n" not in str(caught.value)


@pytest.mark.case("H7")
def test_cuda_on_a_machine_without_is_refused_in_one_line():
    code = (
        "from dp_calc import DP\n"
        f"assert DP({str(COPPER)!r}).device.type == 'cpu'\n"
        "for device in ('cuda', 'cuda:0'):\n"
        "    try:\n"
        f"        DP({str(COPPER)!r}, device=device)\n"
        "    except ValueError as error:\n"
        "        print(error)\n"
    )
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        f'device "{device}" is not available here, only cpu'
        for device in ("cuda", "cuda:0")
    ]


@pytest.mark.case("H7")
def test_a_checkpoint_written_on_a_gpu_loads_on_the_cpu(tmp_path, monkeypatch):
    content, path = torch.load(COPPER, weights_only=True), tmp_path / "from_gpu.pt"
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda _: "cuda:3")
        torch.save(content, path)
    assert b"cuda:3" in path.read_bytes()
    atoms = bulk("Cu")
    expected = evaluate(atoms, DP(COPPER, device="cpu"))[0]
    assert evaluate(atoms, DP(path, device="cpu"))[0] == expected


@pytest.mark.case("H8")
def test_ase_finds_the_calculator_without_importing_torch():
    found = entry_points(group="ase.plugins", name="dp_calc")
    assert [point.value for point in found] == ["dp_calc.ase_plugin"]
    code = (
        "import sys, ase, ase.build, ase.io, ase.calculators.calculator\n"
        "from importlib.metadata import entry_points\n"
        "for point in entry_points(group='ase.plugins', name='dp_calc'):\n"
        "    point.load()\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.case("H8")
def test_the_calculator_registers_with_ase_by_name():
    register_calculator_class("dp_calc", DP)
    try:
        made = get_calculator_class("dp_calc")(COPPER)
    finally:
        external_calculators.pop("dp_calc")
    assert np.isfinite(evaluate(bulk("Cu"), made)[0])
