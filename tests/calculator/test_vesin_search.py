"""vesin on CUDA devices: its limits, and the same edges as on the CPU."""

import warnings

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk

from dp_calc import vesin_search
from dp_calc.neighbors import _SLACK, EdgeBuilder
from dp_calc.structure import Structure
from dp_calc.vesin_search import VesinSearch, _apart, _breaks_on_gpu

TYPES = {"H": 0, "O": 1, "Cu": 2}
FIELDS = ("src", "dst", "vec", "row_ptr", "by_source", "source_ptr")


@pytest.fixture
def cuda():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return torch.device("cuda", torch.cuda.current_device())


def _edges(atoms, device, skin=0.0):
    builder = EdgeBuilder(4.0, 1e-3, device, skin=skin)
    return builder.build(Structure.from_atoms(atoms, TYPES))


def _assert_equal(edges, others):
    for name in FIELDS:
        one, other = getattr(edges, name), getattr(others, name)
        assert torch.equal(one.cpu(), other.cpu()), name


def test_what_the_device_cannot_do_is_done_on_the_cpu_with_one_warning(
    structures, monkeypatch
):
    def full(*_):
        raise RuntimeError("The number of neighbor pairs exceeds\n the maximum capacity")

    monkeypatch.setattr(vesin_search, "_search_on_gpu", full)
    search = VesinSearch(torch.device("cuda", 0))
    expected = VesinSearch(torch.device("cpu"))
    structure = Structure.from_atoms(structures["slab"], TYPES)
    with pytest.warns(UserWarning, match="CPU.*cuda:0: The number .* exceeds the max"):
        found = search(structure, 4.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search(structure, 4.0)
    for one, other in zip(found, expected(structure, 4.0), strict=True):
        assert torch.equal(one, other)


def test_points_are_set_apart_by_less_than_the_slack_of_a_search():
    points = torch.full((200_000, 3), 1e4, dtype=torch.float64)
    apart = _apart(points)
    assert len(apart.unique(dim=0)) == len(points)
    assert (apart - points).norm(dim=1).max() < _SLACK / 2


@pytest.mark.parametrize(
    ("bins", "breaks"),
    [([1, 1, 1], False), ([99, 99, 99], False), ([2048, 2048, 1024], True)],
)
def test_grids_that_are_too_fine(bins, breaks):
    assert _breaks_on_gpu(torch.tensor(bins, dtype=torch.float64)) == breaks


@pytest.mark.gpu
@pytest.mark.parametrize("skin", [0.0, 1.0])
def test_edges_on_the_device(atoms, skin, cuda):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no search on the CPU instead
        edges = _edges(atoms, cuda, skin)
    assert edges.vec.device == cuda
    _assert_equal(edges, _edges(atoms, torch.device("cpu")))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 3, 11])
def test_many_atoms_on_the_device(size, cuda):
    atoms = bulk("Cu", cubic=True) * (size, size, size)
    atoms.rattle(0.05, seed=1)
    _assert_equal(_edges(atoms, cuda), _edges(atoms, torch.device("cpu")))


@pytest.mark.gpu
def test_a_walk_on_the_device(atoms, cuda):
    rng = np.random.default_rng(0)
    builder = EdgeBuilder(4.0, 1e-3, cuda, skin=1.0)
    for _ in range(15):
        atoms.positions += rng.normal(scale=0.05, size=atoms.positions.shape)
        edges = builder.build(Structure.from_atoms(atoms, TYPES))
        _assert_equal(edges, _edges(atoms, torch.device("cpu")))


@pytest.mark.gpu
def test_dense_systems_on_the_device(cuda):
    # vesin has room for as many pairs per atom as the cube of the cutoff in Å.
    atoms = bulk("Cu", "fcc", a=1.6, cubic=True) * (4, 4, 4)
    with pytest.warns(UserWarning, match="on the CPU"):
        edges = _edges(atoms, cuda)
    assert edges.n_edges > 128 * len(atoms)
    _assert_equal(edges, _edges(atoms, torch.device("cpu")))


@pytest.mark.gpu
@pytest.mark.parametrize("pbc", [True, False])
@pytest.mark.parametrize("shift", [0, 1])
def test_atoms_in_the_same_place_on_the_device(pbc, shift, cuda):
    atoms = bulk("Cu", cubic=True) * (3, 3, 3)
    atoms.pbc = pbc
    atoms += Atoms("O", [atoms.positions[17] + shift * pbc * atoms.cell[0]])
    with pytest.raises(ValueError, match=r"atom 17 \(Cu\) and .*atom 108 \(O\) are 0 Å"):
        _edges(atoms, cuda)


@pytest.mark.gpu
def test_device_and_stream_stay_as_they_are(structures, cuda):
    stream = torch.cuda.Stream(cuda)
    expected = _edges(structures["triclinic"], torch.device("cpu"))
    with torch.cuda.stream(stream):
        for _ in range(20):
            edges = _edges(structures["triclinic"], cuda)
            assert torch.cuda.current_stream(cuda) == stream
            assert torch.cuda.current_device() == cuda.index
            _assert_equal(edges, expected)


@pytest.mark.gpu
def test_vesin_gives_its_memory_back(cuda):
    atoms = bulk("Cu", cubic=True) * (8, 8, 8)
    free = []
    for _ in range(10):
        _edges(atoms, cuda)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free.append(torch.cuda.mem_get_info(cuda)[0])
    assert free[-1] >= free[2] - 2**21
