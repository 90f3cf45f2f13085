"""Reading the options of a classic model: names, defaults of the format, checks.

Every option is known by name. One that is unknown, or has a value that this version does
not build, is an error: it could change the energy without a trace.
"""

from typing import Any

from ..dpa4.activation import is_activation
from ..dpa4.option_types import check_exclusions, check_fitting
from ..dpa4.options import bad_value, read_precision
from ..errors import UnsupportedOptionError
from .config import DescriptorConfig, FittingConfig, ModelConfig
from .option_checks import check_descriptor

__all__ = ["descriptor_kind", "read_model"]

_KINDS = {
    "se_e2_a": "se_e2_a",
    "se_a": "se_e2_a",
    "se_e2_r": "se_e2_r",
    "se_r": "se_e2_r",
    "se_e3": "se_e3",
    "se_at": "se_e3",
    "se_a_3be": "se_e3",
    "se_e3_tebd": "se_e3_tebd",
    "dpa1": "dpa1",
    "se_atten": "dpa1",
    "se_atten_v2": "dpa1",
}

_COMMON: dict[str, Any] = {
    "rcut": 6.0,
    "rcut_smth": 0.5,
    "sel": None,
    "neuron": [10, 20, 40],
    "activation_function": "tanh",
    "resnet_dt": False,
    "precision": "default",
    "exclude_types": [],
    "env_protection": 0.0,
}
_TYPE_EMBEDDING = {
    "tebd_dim": 8,
    "tebd_input_mode": "concat",
    "use_econf_tebd": False,
    "concat_output_tebd": True,
}
_OF_KIND: dict[str, dict[str, Any]] = {
    "se_e2_a": {"axis_neuron": 4, "type_one_side": False},
    "se_e2_r": {"type_one_side": False},  # stored, but the nets are always one-sided
    "se_e3": {},
    "se_e3_tebd": {**_TYPE_EMBEDDING, "use_tebd_bias": True, "smooth": True},
    "dpa1": {
        **_TYPE_EMBEDDING,
        "use_tebd_bias": False,
        "axis_neuron": 4,
        "type_one_side": False,
        "smooth_type_embedding": False,
        "stripped_type_embedding": None,
        "attn_layer": 2,
        "lmax": 1,
    },
}
# Options of training, or of attention layers, which are refused as a whole.
_NO_EFFECT = {
    "type", "type_map", "ntypes", "seed", "trainable", "set_davg_zero", "attn",
    "attn_dotr", "attn_mask", "trainable_ln", "ln_eps", "scaling_factor", "normalize",
    "temperature",
}  # fmt: skip

_FITTING_DEFAULTS: dict[str, Any] = {
    "neuron": [120, 120, 120],
    "activation_function": "tanh",
    "resnet_dt": True,
    "precision": "default",
    "numb_fparam": 0,
    "numb_aparam": 0,
    "default_fparam": None,
    "dim_case_embd": 0,
    "use_aparam_as_mask": False,
    "atom_ener": [],
}
_ALIASES = {
    "n_axis_neuron": "axis_neuron",
    "n_neuron": "neuron",
    "smooth_type_embdding": "smooth_type_embedding",
}
_FITTING_NO_EFFECT = {"type", "seed", "trainable", "rcond", "layer_name", "mixed_types"}
_TERMS_BESIDE_THE_NET = ("use_srtab", "spin", "modifier", "type_embedding")


def descriptor_kind(name: Any) -> str | None:
    """The kind that a descriptor's name or alias means; None for other descriptors."""
    return _KINDS.get(str(name))


def read_model(params: dict[str, Any]) -> ModelConfig:
    """Read ``model_params`` of one branch.

    Raises:
        UnsupportedOptionError: an option or value that this version does not build.
    """
    for name in _TERMS_BESIDE_THE_NET:
        if params.get(name):
            raise bad_value("model", name, params[name], "nothing")
    bridging = str(params.get("bridging_method") or "none").lower()
    if bridging != "none":
        raise bad_value("model", "bridging_method", bridging, "none")
    type_map = tuple(params["type_map"])
    pairs = params.get("pair_exclude_types") or ()
    atoms = params.get("atom_exclude_types") or ()
    check_exclusions(pairs, atoms, len(type_map))
    return ModelConfig(
        descriptor=_read_descriptor(params["descriptor"], type_map),
        fitting=_read_fitting(params.get("fitting_net") or {}),
        pair_exclude_types=_as_pairs(pairs),
        atom_exclude_types=tuple(atoms),
    )


def _read_descriptor(stored: dict, type_map: tuple[str, ...]) -> DescriptorConfig:
    kind = _KINDS[stored["type"]]
    o = _complete("descriptor", stored, _COMMON | _OF_KIND[kind], _NO_EFFECT)
    if stored["type"] == "se_atten_v2":
        o |= {"tebd_input_mode": "strip", "smooth_type_embedding": True}
    if o.get("stripped_type_embedding") is not None:  # older name of tebd_input_mode
        o["tebd_input_mode"] = "strip" if o["stripped_type_embedding"] else "concat"
    check_descriptor(o, len(type_map))
    return DescriptorConfig(
        kind=kind,
        type_map=type_map,
        rcut=float(o["rcut"]),
        rcut_smth=float(o["rcut_smth"]),
        sel=_read_sel(o["sel"], kind, len(type_map)),
        neuron=tuple(o["neuron"]),
        activation=o["activation_function"],
        resnet_dt=o["resnet_dt"],
        exclude_types=_as_pairs(o["exclude_types"]),
        env_protection=float(o["env_protection"]),
        precision=read_precision(o["precision"], "descriptor"),
        type_one_side=o.get("type_one_side", False),
        axis_neuron=o.get("axis_neuron", 0),
        tebd_dim=o.get("tebd_dim", 0),
        tebd_mode=o.get("tebd_input_mode", "strip"),
        tebd_bias=o.get("use_tebd_bias", False),
        concat_tebd=o.get("concat_output_tebd", False),
        smooth=o.get("smooth", o.get("smooth_type_embedding", True)),
    )


def _read_sel(sel: Any, kind: str, ntypes: int) -> tuple[int, ...]:
    """Room for neighbours: by type, or one number where types share it."""
    numbers = tuple(sel) if isinstance(sel, list | tuple) else (sel,)
    if not all(type(n) is int and n >= 0 for n in numbers) or sum(numbers) == 0:
        raise bad_value("descriptor", "sel", sel, "numbers of neighbours")
    if kind in ("se_e3_tebd", "dpa1"):
        return (sum(numbers),)
    if len(numbers) != ntypes:
        raise bad_value(
            "descriptor", "sel", sel, f"one number for each of {ntypes} types"
        )
    return numbers


def _read_fitting(stored: dict[str, Any]) -> FittingConfig:
    o = _complete("fitting_net", stored, _FITTING_DEFAULTS, _FITTING_NO_EFFECT)
    check_fitting({**o, "case_film_embd": False})
    if not isinstance(o["resnet_dt"], bool):
        raise bad_value("fitting_net", "resnet_dt", o["resnet_dt"], "true or false")
    if not isinstance(o["atom_ener"] or [], list):
        raise bad_value("fitting_net", "atom_ener", o["atom_ener"], "a list")
    if not is_activation(o["activation_function"]):
        raise bad_value(
            "fitting_net", "activation_function", o["activation_function"], "a known name"
        )
    return FittingConfig(
        neuron=tuple(o["neuron"]),
        activation=o["activation_function"],
        resnet_dt=o["resnet_dt"],
        precision=read_precision(o["precision"], "fitting_net"),
        numb_fparam=o["numb_fparam"],
        numb_aparam=o["numb_aparam"],
        default_fparam=o["default_fparam"] is not None,
        aparam_is_mask=o["use_aparam_as_mask"],
        n_cases=o["dim_case_embd"],
        vacuum=tuple(e is not None for e in o["atom_ener"] or ()),
    )


def _complete(
    section: str, stored: dict[str, Any], defaults: dict[str, Any], no_effect: set[str]
) -> dict[str, Any]:
    """Options with the defaults of those that are not stored."""
    given = {_ALIASES.get(k, k): v for k, v in stored.items() if k not in no_effect}
    unknown = sorted(given.keys() - defaults.keys())
    if unknown:
        raise UnsupportedOptionError(
            f"{section} option {', '.join(unknown)} is not known to this version, so the "
            "model cannot be evaluated; a newer version may know it"
        )
    return {**defaults, **given}


def _as_pairs(value: Any) -> tuple[tuple[int, int], ...]:
    return tuple(sorted({(min(p), max(p)) for p in value or ()}))
