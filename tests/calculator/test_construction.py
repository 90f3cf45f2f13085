"""Arguments of the calculator: each one works or is refused in plain words."""

import inspect
import subprocess
import sys
import warnings
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from ase import Atoms

import dp_calc
from dp_calc import DP, Settings
from dp_calc.data import __file__ as data_file
from dp_calc.placement import pick_device, pick_dtype

WATER = data_file.replace("__init__.py", "water_mini.pt")


def test_signature():
    parameters = inspect.signature(DP).parameters.values()
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == [
        "model",
        "label",
        "type_dict",
        "neighbor_list",
        "head",
        "nlist_backend",
    ]
    assert [p.name for p in parameters if p.kind is p.KEYWORD_ONLY] == ["device", "dtype"]


def test_attributes(pair_model):
    calc = DP(pair_model)
    assert calc.type_map == ["H", "O", "Cu"]
    assert calc.rcut == 5.0
    assert calc.device == torch.device("cpu")
    assert calc.model is pair_model
    assert calc.settings == Settings()
    assert calc.label == "DP"
    assert calc.name == "dp"


def test_label(pair_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calc = DP(pair_model, "out/water")
    calc.calculate(Atoms("O"))
    assert calc.label == "out/water"
    assert not list(tmp_path.iterdir())


def test_repr_is_short_and_says_what_it_is(pair_model):
    assert repr(DP(pair_model)) == ("DP(5 Å cutoff, 3 elements: H O Cu; float64 on cpu)")


def test_import_is_light():
    code = "import sys, dp_calc; dp_calc.__version__; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names():
    assert dp_calc.__version__
    assert dp_calc.load_model is dp_calc.placement.load_model
    assert {"DP", "Settings", "load_model", "__version__"} <= set(dir(dp_calc))
    with pytest.raises(AttributeError, match="no attribute 'Dp'"):
        _ = dp_calc.Dp


# Settings


def test_every_setting_is_a_keyword(pair_model):
    for name in Settings.names():
        calc = DP(pair_model, **{name: getattr(Settings(), name)})
        assert calc.settings == Settings()
    assert DP(pair_model, kernels="torch").settings == Settings(kernels="torch")


@pytest.mark.parametrize("name", ["kernel", "directory", "atoms", "restart"])
def test_unknown_keywords(name, pair_model):
    with pytest.raises(
        TypeError, match=f"unknown setting {name}; the settings are kernels"
    ):
        DP(pair_model, **{name: "auto"})


def test_settings_are_checked_before_the_model_is_loaded():
    with pytest.raises(ValueError, match="kernels must be"):
        DP("no such file.pt", kernels="fast")


@pytest.mark.parametrize("value", ["cuda", "", None, True, ["auto"]])
def test_wrong_values(value):
    words = 'kernels must be "auto" or "torch" or "triton", not'
    with pytest.raises(ValueError, match=words):
        Settings(kernels=value)


@pytest.mark.parametrize(
    "keywords", [{"kernels": "triton"}, {"backward": "cohort"}, {"precision": "fast"}]
)
def test_what_needs_kernels_is_refused_where_there_are_none(keywords):
    ((name, value),) = keywords.items()
    words = (
        f'^{name}="{value}" cannot be had: the kernels need a CUDA device, and the model '
        "is on cpu; leave it out$"
    )
    with pytest.raises(ValueError, match=words):
        DP(WATER, device="cpu", **keywords)


def test_kernels_of_a_model_that_has_none(pair_model):
    with pytest.raises(ValueError, match="this PairModel model has none"):
        DP(pair_model, kernels="triton")
    with pytest.raises(ValueError, match='backward="cohort" cannot be had'):
        DP(pair_model, backward="cohort")


@pytest.mark.parametrize("keywords", [{"backward": "cohort"}, {"precision": "fast"}])
def test_what_needs_kernels_is_refused_without_them(keywords):
    with pytest.raises(ValueError, match='which kernels="torch" rules out'):
        Settings(kernels="torch", **keywords)


def test_settings_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Settings().kernels = "torch"


def test_describe_says_which_path_runs_and_why(pair_model):
    assert Settings().describe(pair_model) == (
        "Plain PyTorch on cpu in float64, because the kernels need a CUDA device, "
        "and the model is on cpu. Not compiled: it is on only for CUDA devices unless "
        "asked for. For the forces all activations are kept where they fit into half of "
        "the memory, else edges are evaluated again in cohorts."
    )
    assert Settings(kernels="torch", backward="stream").describe() == (
        'Plain PyTorch, as asked by kernels="torch". Compiled on CUDA devices only. For '
        "the forces edges are evaluated again in cohorts."
    )


def test_a_calculator_cannot_be_changed(pair_model):
    with pytest.raises(TypeError, match="kernels cannot be changed"):
        DP(pair_model).set(kernels="torch")


# Model, head, precision, device


@pytest.mark.parametrize("model", [None, 3, {"model": 1}])
def test_no_model(model):
    with pytest.raises(TypeError, match="path or a loaded model"):
        DP(model)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.pt"):
        DP(tmp_path / "nothing.pt")


def test_a_loaded_model_stays_as_it_is(pair_model):
    DP(pair_model, dtype="float64", device="cpu")
    for options in ({"dtype": "float32"}, {"head": "water"}):
        with pytest.raises(ValueError, match=f"give {next(iter(options))} to load_model"):
            DP(pair_model, **options)
    pair_model.device = torch.device("cuda:0")
    with pytest.raises(ValueError, match="give device to load_model"):
        DP(pair_model, device="cpu")


@pytest.mark.parametrize("dtype", ["float64", torch.float64])
def test_precision(dtype):
    assert DP(WATER).model.dtype == torch.float32
    assert DP(WATER, dtype=dtype).model.dtype == torch.float64


@pytest.mark.parametrize("dtype", ["float16", "double", torch.bfloat16, float, 64, ""])
def test_wrong_precision(dtype):
    with pytest.raises(ValueError, match='"float32" or "float64"'):
        pick_dtype(dtype)


@pytest.mark.parametrize("device", ["cpu", "cpu:0", torch.device("cpu")])
def test_cpu(device):
    assert DP(WATER, device=device).device == torch.device("cpu")


def test_default_device():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert DP(WATER).device.type == expected


@pytest.mark.parametrize("device", ["gpu", "", "cuda:x", 1.5, []])
def test_wrong_device(device):
    with pytest.raises(ValueError, match='device must be "cpu", "cuda"'):
        pick_device(device)


@pytest.mark.parametrize("device", ["cuda:77", "meta", "mps"])
def test_device_that_is_not_here(device):
    with pytest.raises(ValueError, match=f'"{device}" is not available here, only cpu'):
        pick_device(device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_where_there_is_none():
    with pytest.raises(ValueError, match='"cuda" is not available here, only cpu'):
        DP(WATER, device="cuda")


# Elements


def test_type_dict(pair_model):
    atoms = Atoms("Au")
    energies = [
        DP(pair_model, type_dict={"Au": t}).get_property("energy", atoms)
        for t in range(3)
    ]
    assert energies == [-1.25, 0.5, 2.0]
    with pytest.raises(ValueError, match=r"contains H.*knows Au"):
        DP(pair_model, type_dict={"Au": 0}).calculate(Atoms("H"))


@pytest.mark.parametrize("index", [-1, 3, 1.0, "1", True, None, np.int64(5)])
def test_types_out_of_range(index, pair_model):
    with pytest.raises(ValueError, match=r"types 0 to 2 \(H, O, Cu\)"):
        DP(pair_model, type_dict={"H": index})


@pytest.mark.parametrize("type_dict", [{}, ["H", "O"], "HO"])
def test_no_type_dict(type_dict, pair_model):
    with pytest.raises(ValueError, match="must map element symbols"):
        DP(pair_model, type_dict=type_dict)


def test_type_dict_with_unknown_symbols(pair_model):
    with pytest.raises(ValueError, match="'Hx', which is not an element"):
        DP(pair_model, type_dict={"Hx": 0})


def test_untrained_elements_cause_one_warning(pair_model, structures):
    pair_model.source = type("Source", (), {"observed_types": ("H", "O")})
    calc = DP(pair_model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calc.calculate(Atoms("O"))
        assert not caught
        for atoms in (Atoms("Cu"), Atoms("HCu", [[0, 0, 0], [0, 0, 2]])):
            calc.calculate(atoms)
    assert ["never trained on Cu" in str(w.message) for w in caught] == [True]
