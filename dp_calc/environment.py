"""Defaults of settings from environment variables; keywords win over them."""

import warnings
from collections.abc import Mapping
from typing import Any

__all__ = ["settings_from_environment"]

_MEANING: dict[str, dict[str, dict[str, Any]]] = {
    "DP_COMPILE_INFER": {"0": {"compile": False}, "1": {"compile": True}},
    "DP_TRITON_INFER": {
        "0": {"kernels": "torch"},
        "1": {"kernels": "triton"},
        "2": {"kernels": "triton"},
        "3": {"kernels": "triton", "precision": "fast"},
    },
    "DP_SO2_EDGE_COHORT_INFER": {"0": {}, "1": {"backward": "cohort"}},
    "DP_TF32_INFER": {
        "0": {"precision": "exact"},
        "1": {"precision": "tf32"},
        "2": {"precision": "tf32"},
    },
    "DP_AMP_INFER": {"0": {}},
}
"""Variable -> value -> settings; an empty variable counts as unset."""

_THREADS = ("DP_INTRA_OP_PARALLELISM_THREADS", "DP_INTER_OP_PARALLELISM_THREADS")


def settings_from_environment(
    environment: Mapping[str, str],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the variables once.

    Args:
        environment: variables by name, like ``os.environ``.

    Returns:
        Settings by name, and for each the assignment that it comes from.

    Raises:
        ValueError: a variable has a value that it does not take, or two contradict.
    """
    settings: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for variable, meaning in _MEANING.items():
        value = environment.get(variable, "").strip()
        if not value:
            continue
        if value not in meaning:
            raise ValueError(_refusal(variable, value))
        for name, setting in meaning[value].items():
            if settings.get(name, setting) != setting:
                raise ValueError(
                    f"{origins[name]} and {variable}={value} contradict each other; "
                    "unset one of them"
                )
            settings[name], origins[name] = setting, f"{variable}={value}"
    _warn_of_threads(environment)
    return settings, origins


def _refusal(variable: str, value: str) -> str:
    if variable == "DP_AMP_INFER":
        return (
            f"{variable}={value} asks for half precision, which makes forces too rough "
            "to integrate; unset it"
        )
    return f"{variable} must be {' or '.join(_MEANING[variable])}, not {value!r}"


def _warn_of_threads(environment: Mapping[str, str]) -> None:
    found = [name for name in _THREADS if environment.get(name)]
    if found:
        # At the construction of the calculator, where the filter counts once per place.
        warnings.warn(
            f"{' and '.join(found)} is not applied, as threads belong to the whole "
            "process; set OMP_NUM_THREADS before Python starts",
            stacklevel=4,
        )
