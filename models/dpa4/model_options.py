"""Reading the options of the model and of its fitting net."""

from typing import Any

from ..errors import UnsupportedOptionError
from .activation import is_activation
from .config import FittingConfig, ModelConfig
from .option_types import check_exclusions, check_fitting, is_number
from .options import bad_value, read_descriptor, read_precision
from .spin_options import magnetic_types, read_virtual_spin, spin_scheme

__all__ = ["plain_form", "read_model"]

_FITTING_DEFAULTS: dict[str, Any] = {
    "neuron": [0],
    "activation_function": "silu",
    "precision": "float32",
    "numb_fparam": 0,
    "numb_aparam": 0,
    "default_fparam": None,
    "use_aparam_as_mask": False,
    "dim_case_embd": 0,
    "case_film_embd": False,
    "atom_ener": [],
    "bias_out": False,
    "exclude_types": [],
}

_FITTING_NO_EFFECT = frozenset({
    "type", "seed", "resnet_dt", "trainable", "rcond", "layer_name", "mixed_types",
})  # fmt: skip


def plain_form(params: dict[str, Any]) -> dict[str, Any]:
    """Options with ZBL bridging in its plain form.

    The same model can be stored as a sum of a learned and an analytic model; the result
    names the learned one's options with ``bridging_*`` beside them.
    """
    children = params.get("models")
    if params.get("type") != "linear_ener" or not isinstance(children, list):
        return params
    parts = [m for m in children if isinstance(m, dict)]
    analytic = [m for m in parts if m.get("type") == "inner_potential"]
    learned = [m for m in parts if isinstance(m.get("descriptor"), dict)]
    if (
        not len(children) == 2 == len(analytic) + len(learned)
        or len(learned) != 1
        or analytic[0].get("mode", "zbl") != "zbl"
        or params.get("weights") != "sum"
    ):
        raise UnsupportedOptionError(
            "a linear_ener model is supported only as the sum of one DPA4 model and one "
            "ZBL part"
        )
    bridging = {
        "bridging_method": "zbl",
        "bridging_r_inner": analytic[0].get("r_inner", 0.5),
        "bridging_r_outer": analytic[0].get("r_outer", 0.8),
    }
    # Exclusions of the whole hold, even where it has none.
    outer = {"pair_exclude_types": [], "atom_exclude_types": [], **params}
    for name in ("type", "models", "weights"):
        del outer[name]
    return {**learned[0], **outer, **bridging}


def read_model(params: dict[str, Any], version: float) -> ModelConfig:
    """Read ``model_params`` of one branch, in plain form.

    Args:
        params: the options as stored.
        version: version of the descriptor's format.

    Raises:
        UnsupportedOptionError: an option or value that this version does not know.
        ValueError: options that contradict each other.
    """
    type_map = tuple(params["type_map"])
    descriptor = params["descriptor"]
    for pairs in (params.get("pair_exclude_types"), descriptor.get("exclude_types")):
        check_exclusions(pairs, params.get("atom_exclude_types"), len(type_map))
    magnetic = virtual_spin = None
    without_energy = tuple(params.get("atom_exclude_types") or ())
    pairs = _pair_exclusions(params, descriptor)
    scheme = spin_scheme(params)
    if scheme == "native":
        magnetic = magnetic_types(params["spin"], type_map)
    elif scheme == "deepspin":
        virtual_spin = read_virtual_spin(params, type_map)
        without_energy += tuple(range(len(type_map), 2 * len(type_map)))
        type_map += tuple(f"{name}_spin" for name in type_map)
    return ModelConfig(
        type_map=type_map,
        descriptor=read_descriptor(
            descriptor,
            len(type_map),
            version,
            bridging=_bridging(params),
            magnetic_types=magnetic,
        ),
        fitting=_read_fitting(params.get("fitting_net") or {}),
        pair_exclude_types=pairs,
        atom_exclude_types=without_energy,
        virtual_spin=virtual_spin,
    )


def _bridging(params: dict[str, Any]) -> tuple[float, float] | None:
    stored = params.get("bridging_method")
    method = "none" if stored is None else str(stored).lower()
    if method == "none":
        return None
    if method != "zbl":
        raise bad_value("model", "bridging_method", stored, "zbl or none")
    radii = params.get("bridging_r_inner", 0.5), params.get("bridging_r_outer", 0.8)
    if not all(map(is_number, radii)) or not 0 < radii[0] < radii[1]:
        raise bad_value("model", "bridging_r_inner, bridging_r_outer", radii, "0 < r < r")
    return float(radii[0]), float(radii[1])


def _read_fitting(stored: dict[str, Any]) -> FittingConfig:
    given = {k: v for k, v in stored.items() if k not in _FITTING_NO_EFFECT}
    if "n_neuron" in given:
        given["neuron"] = given.pop("n_neuron")
    unknown = sorted(given.keys() - _FITTING_DEFAULTS.keys())
    if unknown:
        raise UnsupportedOptionError(
            f"fitting_net option {', '.join(unknown)} is not known to this version"
        )
    o = {**_FITTING_DEFAULTS, **given}
    check_fitting(o)
    for name in ("exclude_types", "bias_out"):
        if o[name]:
            raise bad_value("fitting_net", name, o[name], "nothing")
    if not is_activation(o["activation_function"]):
        raise bad_value(
            "fitting_net", "activation_function", o["activation_function"], "a known name"
        )
    n_cases = o["dim_case_embd"]
    return FittingConfig(
        neuron=tuple(o["neuron"]),
        activation=o["activation_function"].lower(),
        precision=read_precision(o["precision"], "fitting_net"),
        numb_fparam=o["numb_fparam"],
        numb_aparam=o["numb_aparam"],
        default_fparam=o["default_fparam"] is not None,
        aparam_is_mask=o["use_aparam_as_mask"],
        n_cases=n_cases,
        case_film=bool(o["case_film_embd"]) and n_cases > 0,
        subtracts_vacuum=any(e is not None for e in o["atom_ener"] or ()),
    )


def _pair_exclusions(params: dict, descriptor: dict) -> tuple[tuple[int, int], ...]:
    """Excluded type pairs.

    The stored form has them at the model and an empty list at the descriptor; two
    different lists, or an empty one at the model beside a full one, are a contradiction.
    """
    of_model = _as_pairs(params.get("pair_exclude_types"))
    of_descriptor = _as_pairs(descriptor.get("exclude_types"))
    if "pair_exclude_types" in params and of_descriptor and of_model != of_descriptor:
        raise ValueError(
            f"pair_exclude_types={list(of_model)} and descriptor.exclude_types="
            f"{list(of_descriptor)} contradict each other, so the checkpoint is ambiguous"
        )
    return of_model or of_descriptor


def _as_pairs(value) -> tuple[tuple[int, int], ...]:
    return tuple(sorted({(min(p), max(p)) for p in value or ()}))
