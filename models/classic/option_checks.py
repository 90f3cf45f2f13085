"""Kinds and ranges of the descriptor's options; anything else is refused by name."""

from math import isfinite
from typing import Any

from ..dpa4.activation import is_activation
from ..dpa4.option_checks import bad_value
from ..dpa4.option_types import check_exclusions

__all__ = ["check_descriptor"]

_FLAGS = ("resnet_dt", "type_one_side", "use_econf_tebd", "use_tebd_bias",
          "concat_output_tebd", "smooth", "smooth_type_embedding")  # fmt: skip
_NAMES = ("activation_function", "precision", "tebd_input_mode")
_COUNTS = ("axis_neuron", "tebd_dim")
_ONLY = {"use_econf_tebd": False, "attn_layer": 0, "lmax": 1}


def check_descriptor(o: dict[str, Any], ntypes: int) -> None:
    """Refuse options that are not built, or have no meaning.

    Args:
        o: options of one kind of descriptor, all of them.
        ntypes: number of types.
    """
    for name, value in o.items():
        expected = _expected(name, value)
        if expected is not None:
            raise bad_value("descriptor", name, value, expected)
    _check_numbers(o)
    check_exclusions(o["exclude_types"], (), ntypes)


def _expected(name: str, value: Any) -> str | None:
    """What an option should be, if its value is something else."""
    if name in _ONLY and value != _ONLY[name]:
        return repr(_ONLY[name])
    if name in _FLAGS and not isinstance(value, bool):
        return "true or false"
    if name in _NAMES and not isinstance(value, str):
        return "a name"
    if name in _COUNTS and not _is_count(value):
        return "a positive whole number"
    if name == "stripped_type_embedding" and value not in (None, False, True):
        return "true, false or nothing"
    if name == "activation_function" and not is_activation(value):
        return "a known name"
    if name == "tebd_input_mode" and value not in ("strip", "concat"):
        return "strip or concat"
    return None


def _check_numbers(o: dict[str, Any]) -> None:
    """Lengths and widths, which are bounded by each other."""
    for name in ("rcut", "rcut_smth", "env_protection"):
        if not _is_number(o[name]) or o[name] < 0:
            raise bad_value("descriptor", name, o[name], "a number of at least 0")
    if not o["rcut_smth"] < o["rcut"]:
        raise bad_value("descriptor", "rcut_smth", o["rcut_smth"], f"below {o['rcut']}")
    widths = o["neuron"]
    if not (isinstance(widths, list | tuple) and widths and all(map(_is_count, widths))):
        raise bad_value("descriptor", "neuron", widths, "widths of one or more layers")
    if o.get("axis_neuron", 1) > widths[-1]:
        raise bad_value(
            "descriptor", "axis_neuron", o["axis_neuron"], f"at most {widths[-1]}"
        )


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
