"""What kind of value each option has; anything else is refused by name.

Ranges and combinations are checked where the kinds are known: ``option_checks.py``.
"""

import math
from collections.abc import Callable
from typing import Any

from .option_checks import bad_value

__all__ = ["check_descriptor", "check_exclusions", "check_fitting", "is_number"]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number; a flag is none."""
    return (isinstance(value, float) or _is_integer(value)) and math.isfinite(value)


_ONE: dict[str, Callable[[Any], bool]] = {
    "nothing": lambda v: v is None,
    "flag": lambda v: isinstance(v, bool),
    "integer": _is_integer,
    "number": is_number,
    "name": lambda v: isinstance(v, str),
}

_DESCRIPTOR = {
    "number": ("rcut", "eps"),
    "integer": ("channels", "n_radial", "n_focus", "ffn_blocks", "readout_layers", "lmax",
                "kmax", "extra_node_l", "n_blocks", "mixing_layers", "focus_dim",
                "radial_so2_rank", "n_atten_head", "ffn_neurons"),
    "flag": ("edge_norm", "use_env_seed", "edge_cartesian", "so2_norm", "atten_f_mix",
             "atten_v_proj", "atten_o_proj", "mlp_bias", "layer_scale", "ffn_so3_grid",
             "node_wise_s2", "node_wise_so3", "message_node_s2", "message_node_so3",
             "glu_activation", "add_chg_spin_ebd"),
    "name": ("basis_type", "radial_so2_mode", "so3_readout", "so2_attn_res",
             "full_attn_res", "block_attn_res", "activation_function", "precision"),
    "integers": ("radial_mlp", "env_exp"),
    "flags": ("sandwich_norm", "s2_activation"),
    "integer, nothing": ("mmax",),
    "integers, nothing": ("l_schedule", "m_schedule"),
    "flag, flags": ("grid_mlp",),
    "integer, integers": ("grid_branch",),
    "flag, flags, nothing": ("lebedev_quadrature",),
    "numbers, nothing": ("default_chg_spin",),
    "number, nothing": ("inner_clamp_r_inner", "inner_clamp_r_outer"),
}  # fmt: skip

_FITTING = {
    "integers": ("neuron",),
    "name": ("activation_function", "precision"),
    "integer": ("numb_fparam", "numb_aparam", "dim_case_embd"),
    "flag": ("use_aparam_as_mask", "case_film_embd"),
    "numbers, nothing": ("default_fparam",),
}


def check_descriptor(options: dict[str, Any]) -> None:
    """Refuse values of the wrong kind among the descriptor's options, all of them."""
    _check("descriptor", _DESCRIPTOR, options)


def check_fitting(options: dict[str, Any]) -> None:
    """Refuse values of the wrong kind among the fitting net's options, all of them."""
    _check("fitting_net", _FITTING, options)
    if not isinstance(options["atom_ener"], list | tuple | None):
        raise bad_value("fitting_net", "atom_ener", options["atom_ener"], "a list")
    for name in ("neuron", "numb_fparam", "numb_aparam", "dim_case_embd"):
        numbers = options[name] if name == "neuron" else [options[name]]
        if any(n < 0 for n in numbers):
            raise bad_value("fitting_net", name, options[name], "at least 0")


def check_exclusions(pairs: Any, atoms: Any, ntypes: int) -> None:
    """Refuse excluded pairs of types, and types, that the model does not have."""

    def are_types(value: Any) -> bool:
        return _accepts("integers", value) and all(0 <= t < ntypes for t in value)

    listed = isinstance(pairs, list | tuple | None)
    if not listed or not all(are_types(p) and len(p) == 2 for p in pairs or ()):
        raise bad_value("model", "pair_exclude_types", pairs, f"pairs below {ntypes}")
    if atoms is not None and not are_types(atoms):
        raise bad_value("model", "atom_exclude_types", atoms, f"types below {ntypes}")


def _check(section: str, kinds: dict[str, tuple], options: dict[str, Any]) -> None:
    for kind, names in kinds.items():
        for name in names:
            if not any(_accepts(k, options[name]) for k in kind.split(", ")):
                raise bad_value(section, name, options[name], kind)


def _accepts(kind: str, value: Any) -> bool:
    """Whether a value is of a kind; "integers" are a list of what "integer" is."""
    if kind in _ONE:
        return _ONE[kind](value)
    one = _ONE[kind.removesuffix("s")]
    return isinstance(value, list | tuple) and all(map(one, value))
