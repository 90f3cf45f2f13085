"""Compression through the calculator: what it does, and what it is refused for."""

from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from dp_calc.models.classic.archive import save_compressed
from dp_calc.models.classic.compress import compress, is_compressed

from dp_calc import DP, Settings, load_model

DATA = Path(__file__).parents[1] / "data"
MODEL = DATA / "classic/se_e2_a.pt"


@pytest.fixture
def atoms():
    positions = [[0, 0, 0], [2.4, 0.3, 0], [0.2, 2.6, 0.5], [2.2, 2.4, 2.1]]
    return Atoms("NaClClNa", positions, cell=[5, 5.2, 5.4], pbc=True)


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "compressed.pt"
    save_compressed(compress(load_model(MODEL)), path)
    return path


def kernels_of(model):
    return {embedding.kernels for embedding in model.descriptor.embeddings.values()}


@pytest.mark.parametrize("name", ["se_e2_a", "se_e3", "dpa1_strip_attn0"])
def test_forces_agree_with_the_nets(name, atoms):
    path = DATA / f"classic/{name}.pt"
    dense, tabulated = DP(path, device="cpu"), DP(path, compress=True, device="cpu")
    assert is_compressed(tabulated.model)
    assert tabulated.settings == Settings(compress=True)
    forces = [calc.get_property("forces", atoms) for calc in (dense, tabulated)]
    assert 0 < np.abs(forces[1] - forces[0]).max() < 2e-7


def test_from_a_file_as_from_the_checkpoint(written, atoms):
    expected = DP(MODEL, compress=True, device="cpu").get_property("forces", atoms)
    calc = DP(written, device="cpu")
    assert is_compressed(calc.model)
    assert (calc.get_property("forces", atoms) == expected).all()
    assert DP(written, dtype="float32").model.dtype == torch.float32


def test_stride_and_extrapolate():
    calc = DP(MODEL, compress=True, stride=0.02, extrapolate=3)
    for embedding in calc.model.descriptor.embeddings.values():
        assert embedding.domain.fine == 0.02
        assert embedding.domain.right == 3 * embedding.domain.upper


def test_kernels_evaluate_the_tables(written):
    assert kernels_of(DP(MODEL, compress=True).model) == {"auto"}
    assert kernels_of(DP(MODEL, compress=True, kernels="torch").model) == {"torch"}
    assert kernels_of(DP(written, kernels="torch").model) == {"torch"}


def test_a_model_that_is_given_stays_as_it_is(written, atoms):
    model = load_model(MODEL)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    calc = DP(model, compress=True)
    assert calc.model is not model
    assert not is_compressed(model)
    assert model.state_dict().keys() == state.keys()
    model = load_model(written)
    forces = DP(model).get_property("forces", atoms)
    assert DP(model).model is model
    other = DP(model, kernels="torch")
    assert kernels_of(model) == {"auto"}
    assert (other.get_property("forces", atoms) == forces).all()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"compress": 1}, "compress must be True or False, not 1"),
        ({"compress": "yes"}, "compress must be True or False, not 'yes'"),
        ({"compress": True, "stride": 0}, "stride must be a positive number, not 0"),
        ({"compress": True, "stride": -0.01}, "stride must be a positive number"),
        ({"compress": True, "stride": "0.01"}, "stride must be a positive number"),
        ({"compress": True, "stride": float("nan")}, "stride must be a positive number"),
        ({"compress": True, "stride": True}, "stride must be a positive number"),
        ({"compress": True, "extrapolate": 1.0}, "extrapolate must be a number above 1"),
        (
            {"compress": True, "extrapolate": float("inf")},
            "extrapolate must be a number above 1",
        ),
        ({"compress": True, "extrapolate": None}, "extrapolate must be a number above 1"),
        ({"stride": 0.02}, "stride shapes .* give compress=True"),
        ({"extrapolate": 3.0}, "extrapolate shapes .* give compress=True"),
    ],
)
def test_wrong_settings_are_told_before_the_model_is_loaded(settings, expected):
    with pytest.raises(ValueError, match=expected):
        DP("no such file.pt", **settings)


def test_models_without_embedding_nets(calc):
    with pytest.raises(ValueError, match="a DPA4 model has no embedding nets"):
        DP(DATA / "plain.pt", compress=True)
    with pytest.raises(ValueError, match="a PairModel model has no embedding nets"):
        DP(calc.model, compress=True)


def test_tables_that_cannot_be_made(written):
    with pytest.raises(ValueError, match="compressed already"):
        DP(written, compress=True)
    with pytest.raises(ValueError, match="do not divide"):
        DP(MODEL, compress=True, stride=0.03)


def test_triton_needs_tables_on_a_cuda_device():
    with pytest.raises(ValueError, match="the model is on cpu"):
        DP(MODEL, device="cpu", compress=True, kernels="triton")
    with pytest.raises(ValueError, match="this se_e2_a model has none"):
        DP(MODEL, device="cpu", kernels="triton")


def test_describe_names_what_evaluates_the_tables():
    calc = DP(MODEL, device="cpu", compress=True)
    assert "need a CUDA device" in calc.settings.describe(calc.model)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_kernels_and_plain_torch_give_the_same(atoms):
    forces, hessians = [], []
    for kernels in ("triton", "torch"):
        calc = DP(MODEL, device="cuda", dtype="float64", compress=True, kernels=kernels)
        named = "Triton kernels" in calc.settings.describe(calc.model)
        assert named == (kernels == "triton")
        calc.calculate(atoms)
        forces.append(calc.results["forces"])
        hessians.append(calc.get_hessian(atoms, progress=False))
    np.testing.assert_allclose(*forces, rtol=0, atol=1e-11)
    np.testing.assert_allclose(*hessians, rtol=0, atol=1e-9)
