"""Environment variables are defaults of settings, read once and checked."""

import warnings

import pytest
from reference import DATA

from dp_calc import DP, Settings

ALL = (
    "DP_COMPILE_INFER",
    "DP_TRITON_INFER",
    "DP_SO2_EDGE_COHORT_INFER",
    "DP_TF32_INFER",
    "DP_AMP_INFER",
    "DP_INTRA_OP_PARALLELISM_THREADS",
    "DP_INTER_OP_PARALLELISM_THREADS",
)


@pytest.fixture
def settings(monkeypatch):
    """Settings with only these variables set."""
    for name in ALL:
        monkeypatch.delenv(name, raising=False)

    def make(variables=(), **keywords):
        for name, value in dict(variables).items():
            monkeypatch.setenv(name, value)
        return Settings.from_keywords(**keywords)

    return make


@pytest.mark.parametrize(
    ("variable", "value", "name", "expected"),
    [
        ("DP_COMPILE_INFER", "0", "compile", False),
        ("DP_COMPILE_INFER", "1", "compile", True),
        ("DP_TRITON_INFER", "0", "kernels", "torch"),
        ("DP_TRITON_INFER", "1", "kernels", "triton"),
        ("DP_TRITON_INFER", "2", "kernels", "triton"),
        ("DP_TRITON_INFER", "3", "kernels", "triton"),
        ("DP_TRITON_INFER", "3", "precision", "fast"),
        ("DP_SO2_EDGE_COHORT_INFER", "1", "backward", "cohort"),
        ("DP_TF32_INFER", "0", "precision", "exact"),
        ("DP_TF32_INFER", "1", "precision", "tf32"),
        ("DP_TF32_INFER", "2", "precision", "tf32"),
    ],
)
def test_a_variable_is_a_default(settings, variable, value, name, expected):
    made = settings({variable: value})
    assert getattr(made, name) == expected
    assert f"{variable}={value}" in made.describe()


def test_a_keyword_wins(settings):
    made = settings({"DP_TRITON_INFER": "2"}, kernels="torch")
    assert made.kernels == "torch"
    assert "DP_TRITON_INFER" not in made.describe()


def test_variables_that_ask_for_nothing_change_nothing(settings):
    quiet = {"DP_AMP_INFER": "0", "DP_SO2_EDGE_COHORT_INFER": "0", "DP_COMPILE_INFER": ""}
    assert settings(quiet) == Settings()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"DP_COMPILE_INFER": "yes"}, "DP_COMPILE_INFER must be 0 or 1"),
        ({"DP_TRITON_INFER": "4"}, "must be 0 or 1 or 2 or 3"),
        ({"DP_AMP_INFER": "1"}, "half precision"),
        ({"DP_TRITON_INFER": "3", "DP_TF32_INFER": "1"}, "contradict"),
        (
            {"DP_TRITON_INFER": "0", "DP_SO2_EDGE_COHORT_INFER": "1"},
            'backward="cohort" needs kernels',
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused(settings, variables, words):
    with pytest.raises(ValueError, match=words):
        settings(variables)


@pytest.mark.parametrize(
    ("variable", "value", "setting"),
    [
        ("DP_TRITON_INFER", "1", 'kernels="triton"'),
        ("DP_TRITON_INFER", "3", 'precision="fast"'),
        ("DP_SO2_EDGE_COHORT_INFER", "1", 'backward="cohort"'),
    ],
)
def test_kernels_that_a_cpu_has_not_are_refused(settings, variable, value, setting):
    settings({variable: value})
    words = f"^{variable}={value}: {setting} cannot be had: the kernels need a CUDA"
    with pytest.raises(ValueError, match=words):
        DP(DATA / "heads.pt", device="cpu")


def test_threads_are_left_alone_with_one_warning(settings):
    with pytest.warns(UserWarning, match="OMP_NUM_THREADS") as caught:
        settings(dict.fromkeys(ALL[-2:], "4"))
    assert len(caught) == 1


def test_read_once_per_calculator(settings, monkeypatch):
    settings({"DP_COMPILE_INFER": "0"})
    calc = DP(DATA / "heads.pt", device="cpu")
    monkeypatch.setenv("DP_COMPILE_INFER", "1")
    assert calc.settings.compile is False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "DP_COMPILE_INFER=0" in calc.settings.describe(calc.model)


def test_tf32_needs_a_cuda_device():
    with pytest.raises(ValueError, match="only CUDA devices have it"):
        DP(DATA / "heads.pt", device="cpu", precision="tf32")
