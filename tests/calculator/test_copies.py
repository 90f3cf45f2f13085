"""Copies share the weights; pickles carry them to other processes and times."""

import copy
import gc
import pickle
import shutil
import subprocess
import sys
import weakref
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from ase.neighborlist import NeighborList, NewPrimitiveNeighborList
from dp_calc.models.classic.compress import is_compressed

from dp_calc import DP, load_model
from dp_calc.copies import _pack, _unpack

DATA = Path(__file__).parents[1] / "data"
TINY = DATA / "zero_block.pt"
CLASSIC = DATA / "classic" / "se_e2_a.pt"
CHARGED = DATA / "options" / "block_history_bias.pt"

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device"
)


def pickled(calc):
    return pickle.loads(pickle.dumps(calc))


def water(seed=0):
    atoms = Atoms("OH2", [[0, 0, 0], [0.95, 0, 0], [-0.25, 0.92, 0]], cell=[5, 5.5, 6])
    atoms.pbc = True
    atoms.rattle(0.05, seed=seed)
    return atoms


@pytest.fixture(scope="module")
def file_calc():
    return DP(TINY, device="cpu")


@pytest.fixture
def calc(file_calc):
    file_calc.reset()
    return file_calc


def forces(calc, atoms):
    return calc.get_property("forces", atoms)


# Copies


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_copies_give_the_same_numbers(duplicate, used, dtype):
    calc = DP(TINY, device="cpu", dtype=dtype)
    if used:
        calc.get_property("energy", water())
    other = duplicate(calc)
    assert other.model.dtype == calc.model.dtype
    assert other.device == calc.device
    assert (other.settings, other.parameters) == (calc.settings, calc.parameters)
    assert repr(other) == repr(calc)
    np.testing.assert_array_equal(forces(other, water(1)), forces(calc, water(1)))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_copies_share_weights_and_what_is_compiled(duplicate, calc):
    other = duplicate(calc)
    assert other.model is calc.model
    assert other._engine is calc._engine


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
def test_results_of_copies_are_their_own(duplicate, calc):
    first = forces(calc, water())
    other = duplicate(calc)
    assert other.atoms == calc.atoms
    assert other.atoms is not calc.atoms
    np.testing.assert_array_equal(other.results["forces"], first)
    other.results["forces"][:] = np.nan
    other.atoms.positions += 1
    np.testing.assert_array_equal(forces(calc, water()), first)
    forces(other, water(1))
    np.testing.assert_array_equal(forces(calc, water()), first)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
def test_copies_remember_what_they_evaluated(duplicate, calc, monkeypatch):
    expected = forces(calc, water())
    other = duplicate(calc)
    monkeypatch.setattr(other, "_evaluate", None)
    np.testing.assert_array_equal(forces(other, water()), expected)
    other.get_property("stresses", water())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
def test_copies_notice_changes_of_further_inputs(duplicate):
    calc, atoms = DP(CHARGED, device="cpu"), water()
    atoms.info["charge_spin"] = [0, 1]
    energy = calc.get_property("energy", atoms)
    other = duplicate(calc)
    assert other.check_state(atoms) == []
    atoms.info["charge_spin"] = [1, 2]
    assert other.check_state(atoms) == ["charge_spin"]
    changed = other.get_property("energy", atoms)
    assert changed != energy
    assert calc.get_property("energy", atoms) == changed


def test_a_copied_structure_takes_a_copy_of_its_calculator(calc):
    atoms = water()
    atoms.calc = calc
    other = copy.deepcopy(atoms)
    assert other.calc is not calc
    assert other.calc.model is calc.model
    assert other.get_potential_energy() == atoms.get_potential_energy()


class Scaled(DP):
    """A calculator of a user, with an argument and a result of its own."""

    def __init__(self, factor):
        super().__init__(TINY, device="cpu")
        self.factor = [factor]

    def calculate(self, *args, **kwargs):
        super().calculate(*args, **kwargs)
        self.results["scaled"] = self.factor[0] * self.results["energy"]

    implemented_properties = [*DP.implemented_properties, "scaled"]  # noqa: RUF012


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
def test_subclasses(duplicate):
    calc = Scaled(3)
    other = duplicate(calc)
    calc.factor[0] = 0
    assert isinstance(other, Scaled)
    expected = 3 * calc.get_property("energy", water())
    assert other.get_property("scaled", water()) == expected


@pytest.mark.parametrize("kind", [NeighborList, NewPrimitiveNeighborList])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
def test_a_neighbour_list_of_the_callers_is_copied_with_it(duplicate, kind):
    atoms, cutoff = water(), DP(TINY, device="cpu").rcut
    radii = [cutoff / 2] * len(atoms)
    pairs = kind(radii, skin=0, self_interaction=False, bothways=True)
    calc = DP(TINY, neighbor_list=pairs, device="cpu")
    expected = forces(calc, atoms)
    updates = pairs.nupdates
    other = duplicate(calc)
    np.testing.assert_array_equal(forces(other, water(1)), forces(calc, water(1)))
    calc.reset()
    np.testing.assert_array_equal(forces(calc, atoms), expected)
    assert pairs.nupdates == updates + 2


def test_the_last_calculator_frees_the_weights_at_once():
    calc = DP(TINY, device="cpu")
    forces(calc, water())
    weights = weakref.ref(next(calc.model.parameters()))
    others = [copy.deepcopy(copy.deepcopy(calc)) for _ in range(3)]
    gc.disable()
    try:
        del calc
        assert weights() is not None
        del others
        assert weights() is None
    finally:
        gc.enable()


# Pickles


def test_a_pickle_needs_no_file(tmp_path):
    path = tmp_path / "model.pt"
    shutil.copy(TINY, path)
    calc = DP(path, device="cpu")
    data = pickle.dumps(calc)
    expected = forces(calc, water())
    path.write_bytes(CLASSIC.read_bytes())
    np.testing.assert_array_equal(forces(pickle.loads(data), water()), expected)
    path.unlink()
    np.testing.assert_array_equal(forces(pickle.loads(data), water()), expected)


def test_a_pickle_in_another_process(calc, tmp_path):
    atoms = water()
    atoms.calc = calc
    energy = atoms.get_potential_energy()
    atoms.positions += 0.01 * np.arange(9).reshape(3, 3)
    (tmp_path / "atoms.pickle").write_bytes(pickle.dumps(atoms))
    code = (
        "import pickle\n"
        "atoms = pickle.load(open('atoms.pickle', 'rb'))\n"
        "print(repr(atoms.calc.results['energy']), repr(atoms.get_potential_energy()))"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    earlier, later = map(float, run.stdout.split())
    assert earlier == energy
    assert later == pytest.approx(atoms.get_potential_energy(), rel=1e-6)
    assert later != energy


def test_a_pickle_sends_bytes_and_no_handles_of_shared_memory(calc):
    forces(calc, water())
    data = bytes(ForkingPickler.dumps(calc))
    assert b"rebuild_storage" not in data
    weights = sum(p.nbytes for p in calc.model.state_dict().values())
    assert len(data) < 1.2 * weights + 100_000


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(protocol, calc):
    other = pickle.loads(pickle.dumps(calc, protocol))
    assert other.get_property("energy", water()) == calc.get_property("energy", water())


def test_two_structures_with_one_calculator_still_share_it(calc):
    pair = [water(0), water(1)]
    for atoms in pair:
        atoms.calc = calc
    one, two = pickled(pair)
    assert one.calc is two.calc
    assert one.calc is not calc


@pytest.mark.parametrize("path", [TINY, CLASSIC])
def test_pickles_of_loaded_models(path):
    model = load_model(path, device="cpu", dtype="float64")
    calc = DP(model)
    other = pickled(calc)
    atoms = bulk("NaCl", "rocksalt", a=5.6)
    atoms.rattle(0.05, seed=0)
    np.testing.assert_array_equal(forces(other, atoms), forces(calc, atoms))
    assert other.model is not model
    assert other.model.source == model.source
    assert not any(p.requires_grad for p in other.model.parameters())
    assert not other.model.training


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
def test_compressed_models(duplicate):
    calc = DP(CLASSIC, compress=True, device="cpu")
    other = duplicate(calc)
    assert is_compressed(other.model)
    atoms = bulk("NaCl", "rocksalt", a=5.6)
    atoms.rattle(0.05, seed=0)
    np.testing.assert_array_equal(forces(other, atoms), forces(calc, atoms))


def test_a_device_that_is_not_here_is_named(calc, monkeypatch):
    packed = _pack(calc.model)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"pickled on cuda:7: .*only cpu, cuda:0; p"):
        _unpack(type(packed)(packed.version, "cuda:7", packed.content))


def test_another_version_is_refused(calc):
    packed = _pack(calc.model)
    with pytest.raises(pickle.UnpicklingError, match=r"pickled by dp_calc 0\.0\.1 and"):
        _unpack(type(packed)("0.0.1", "cpu", packed.content))


def test_cloudpickle(calc):
    cloudpickle = pytest.importorskip("cloudpickle", reason="install cloudpickle")
    offset = 1.5

    def energy(atoms):
        return calc.get_property("energy", atoms) + offset

    data = cloudpickle.dumps(energy)
    assert pickle.loads(data)(water()) == energy(water())


@pytest.mark.gpu
@needs_cuda
def test_copies_take_no_more_memory_on_a_device():
    calc = DP(TINY, device="cuda")
    forces(calc, water())
    before = torch.cuda.memory_allocated()
    copies = [copy.deepcopy(calc) for _ in range(8)]
    for other in copies:
        np.testing.assert_array_equal(forces(other, water()), forces(calc, water()))
    weights = sum(p.nbytes for p in calc.model.parameters())
    assert torch.cuda.memory_allocated() - before < weights


@pytest.mark.gpu
@needs_cuda
def test_pickles_return_to_their_device():
    calc = DP(TINY, device="cuda:0", dtype="float64")
    other = pickled(calc)
    assert other.device == other.model.device == torch.device("cuda:0")
    np.testing.assert_array_equal(forces(other, water()), forces(calc, water()))
