"""Threads: every answer belongs to the structure it was asked about."""

import copy
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from ase.mep import NEB

from dp_calc import DP

THREADS = 6


@pytest.fixture(autouse=True)
def frequent_switches():
    """Threads interrupt each other as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def moves(structures):
    """For each thread a row of structures, of unlike sizes."""
    names = ["triclinic", "cluster", "tiny", "slab", "chain", "left-handed"]
    rows = []
    for seed, name in enumerate(names):
        row = [structures[name].copy() for _ in range(5)]
        for step, atoms in enumerate(row):
            atoms.rattle(0.05, seed=10 * seed + step)
        rows.append(row)
    return rows


def answers(calc, row):
    start.wait()
    result = []
    for atoms in row:
        atoms.calc = calc
        result.append((atoms.get_potential_energy(), atoms.get_forces()))
        calc.get_property("virial", atoms)
    return result


start = threading.Barrier(THREADS)


def in_threads(calculators, rows):
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(answers, calculators, rows))


def one_after_the_other(model, rows):
    calc, result = DP(model), []
    for row in rows:
        result.append([])
        for atoms in row:
            calc.calculate(atoms)
            result[-1].append((calc.results["energy"], calc.results["forces"]))
    return result


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        for (e1, f1), (e2, f2) in zip(one, other, strict=True):
            assert e1 == e2
            np.testing.assert_array_equal(f1, f2)


class Hesitant(DP):
    """Gives other threads time between a look at the last structure and its results."""

    def check_state(self, *args):
        changed = super().check_state(*args)
        time.sleep(1e-4)
        return changed


def test_one_calculator_for_all_threads(pair_model, moves):
    found = in_threads([Hesitant(pair_model)] * THREADS, moves)
    assert_same(found, one_after_the_other(pair_model, moves))


def test_a_copy_for_each_thread(calc, pair_model, moves):
    calculators = [copy.deepcopy(calc) for _ in range(THREADS)]
    pair_model.calls = 0
    found = in_threads(calculators, moves)
    assert pair_model.calls == sum(map(len, moves))
    assert_same(found, one_after_the_other(pair_model, moves))


def test_calculators_made_from_one_model(pair_model, moves):
    calculators = [DP(pair_model) for _ in range(THREADS)]
    assert_same(in_threads(calculators, moves), one_after_the_other(pair_model, moves))


def test_copies_take_turns(calc, moves):
    """What is compiled has buffers of its own: two threads never run it at once."""
    inside, most = [], []

    def enter(*_):
        inside.append(1)
        most.append(len(inside))
        time.sleep(1e-4)

    def leave(*_):
        inside.pop()

    calc.model.register_forward_pre_hook(enter)
    calc.model.register_forward_hook(leave)
    in_threads([copy.copy(calc) for _ in range(THREADS)], moves)
    assert len(most) == sum(map(len, moves))
    assert max(most) == 1


@pytest.mark.parametrize(
    ("shared", "parallel"), [(True, False), (False, False), (False, True)]
)
def test_nudged_elastic_band(shared, parallel, structures, calc, pair_model):
    """With ``parallel`` ASE evaluates the images in threads."""
    first = structures["cluster"]
    last = first.copy()
    last.positions[0] += [0.6, -0.4, 0.3]
    images = [first, *(first.copy() for _ in range(4)), last]
    for image in images:
        image.calc = calc if shared else copy.copy(calc)
    band = NEB(
        images,
        method="improvedtangent",
        allow_shared_calculator=shared,
        parallel=parallel,
    )
    band.interpolate()
    pair_model.calls = 0
    forces = band.get_forces()
    assert pair_model.calls == len(images)
    alone = [DP(pair_model) for _ in images]
    energies = [c.get_property("energy", i) for c, i in zip(alone, images, strict=True)]
    np.testing.assert_array_equal(band.energies, energies)
    real = [c.get_property("forces", i) for c, i in zip(alone, images, strict=True)]
    np.testing.assert_array_equal(band.real_forces[1:-1], real[1:-1])
    assert np.isfinite(forces).all()
