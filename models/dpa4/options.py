"""Reading the descriptor's options: defaults of the format, names, checks.

Every option is known by name. One that is unknown, or has a value outside the format, is
an error: it could change the energy without a trace.
"""

from typing import Any

from ..errors import UnsupportedOptionError
from .config import DescriptorConfig, GridOption
from .option_checks import bad_value, check_combinations, check_values
from .option_types import check_descriptor

__all__ = ["bad_value", "read_descriptor", "read_precision"]

# Options of training or of other backends: no influence on an energy.
_NO_EFFECT = frozenset({
    "type", "type_map", "ntypes", "sel", "seed", "trainable", "random_gamma", "use_amp",
    "s2_grid_resolution", "exclude_types",
})  # fmt: skip

_DEFAULTS: dict[str, Any] = {
    "rcut": 6.0,
    "channels": 64,
    "basis_type": "bessel",
    "n_radial": 16,
    "radial_mlp": [0],
    "env_exp": [7, 5],
    "edge_norm": True,
    "use_env_seed": True,
    "edge_cartesian": False,
    "node_cartesian": "none",
    "lmax": 3,
    "l_schedule": None,
    "mmax": 1,
    "m_schedule": None,
    "kmax": 1,
    "extra_node_l": 0,
    "n_blocks": 3,
    "so2_norm": False,
    "mixing_layers": 4,
    "so2_attn_res": "none",
    "radial_so2_mode": "degree_channel",
    "radial_so2_rank": 1,
    "n_focus": 1,
    "focus_dim": 0,
    "n_atten_head": 1,
    "atten_f_mix": False,
    "atten_v_proj": False,
    "atten_o_proj": False,
    "ffn_neurons": 0,
    "grid_mlp": False,
    "grid_branch": 0,
    "ffn_blocks": 1,
    "sandwich_norm": [False, True, True, False],
    "mlp_bias": False,
    "layer_scale": False,
    "full_attn_res": "none",
    "block_attn_res": "none",
    "s2_activation": [False, True],
    "ffn_so3_grid": False,
    "node_wise_s2": False,
    "node_wise_so3": False,
    "message_node_s2": False,
    "message_node_so3": False,
    "so3_readout": "none",
    "readout_layers": 1,
    "lebedev_quadrature": True,
    "activation_function": "silu",
    "glu_activation": True,
    "precision": "float32",
    "eps": 1e-7,
    "inner_clamp_r_inner": None,
    "inner_clamp_r_outer": None,
    "add_chg_spin_ebd": False,
    "default_chg_spin": None,
    "use_spin": None,
}

_PRECISIONS = {"float32": "float32", "single": "float32", "float64": "float64",
               "double": "float64", "default": "float64"}  # fmt: skip


def read_descriptor(
    stored: dict[str, Any],
    ntypes: int,
    version: float,
    bridging: tuple[float, float] | None = None,
    magnetic_types: tuple[bool, ...] | None = None,
) -> DescriptorConfig:
    """Read the ``descriptor`` section.

    Args:
        stored: the section as the file has it.
        ntypes: number of types of the model.
        version: version of the descriptor's format.
        bridging: inner and outer radius, from the options of the model.
        magnetic_types: types that carry a spin, from the options of the model.

    Raises:
        UnsupportedOptionError: an option or value that this version does not know.
    """
    given = {k: v for k, v in stored.items() if k not in _NO_EFFECT}
    if given.get("so2_layers") is not None:  # older name of mixing_layers
        given["mixing_layers"] = given["so2_layers"]
    given.pop("so2_layers", None)
    unknown = sorted(given.keys() - _DEFAULTS.keys())
    if unknown:
        raise UnsupportedOptionError(
            f"descriptor option {', '.join(unknown)} is not known to this version, so "
            "the model cannot be evaluated; a newer version may know it"
        )
    o = {**_DEFAULTS, **given}
    check_descriptor(o)
    check_values(o)
    lmax, mmax, schedule = _degrees(o)
    magnetic = magnetic_types or _optional_tuple(o["use_spin"])
    check_combinations(o, schedule, version, with_spin=magnetic is not None)
    so2_grid, node_wise, message_node, ffn_grid = _grids(o)
    depth, query = _depth_attention(o)
    return DescriptorConfig(
        ntypes=ntypes,
        rcut=float(o["rcut"]),
        channels=o["channels"],
        basis_type=o["basis_type"].lower(),
        n_radial=o["n_radial"],
        radial_mlp=tuple(o["radial_mlp"]),
        env_exp=tuple(o["env_exp"]),
        edge_norm=o["edge_norm"],
        use_env_seed=o["use_env_seed"],
        lmax=lmax,
        mmax=mmax,
        kmax=o["kmax"],
        extra_node_l=o["extra_node_l"],
        schedule=schedule,
        mixing_layers=o["mixing_layers"],
        so2_norm=o["so2_norm"],
        so2_attn_res=o["so2_attn_res"].lower(),
        so2_grid=so2_grid,
        radial_so2_mode=o["radial_so2_mode"].lower(),
        radial_so2_rank=o["radial_so2_rank"],
        n_focus=o["n_focus"],
        focus_dim=o["focus_dim"],
        n_atten_head=o["n_atten_head"],
        atten_f_mix=o["atten_f_mix"],
        atten_v_proj=o["atten_v_proj"],
        atten_o_proj=o["atten_o_proj"],
        edge_cartesian=o["edge_cartesian"],
        node_cartesian=_node_cartesian(o["node_cartesian"]),
        node_wise=node_wise,
        message_node=message_node,
        ffn_grid=ffn_grid,
        ffn_neurons=o["ffn_neurons"],
        ffn_blocks=o["ffn_blocks"],
        sandwich_norm=tuple(o["sandwich_norm"]),
        mlp_bias=o["mlp_bias"],
        layer_scale=o["layer_scale"],
        depth_attention=depth,
        depth_query=query,
        readout=o["so3_readout"].lower(),
        readout_layers=o["readout_layers"],
        activation=o["activation_function"].lower(),
        glu=o["glu_activation"],
        charge_spin=o["add_chg_spin_ebd"],
        default_charge_spin=_optional_tuple(o["default_chg_spin"]),
        magnetic_types=magnetic,
        bridging=bridging or _inner_clamp(o),
        eps=float(o["eps"]),
        precision=read_precision(o["precision"], "descriptor"),
        version=version,
    )


def read_precision(value: str, section: str) -> str:
    """Name of the torch dtype that a precision option means."""
    if value not in _PRECISIONS:
        raise UnsupportedOptionError(
            f"{section} option precision={value!r} is not supported; models of 16-bit "
            "precision cannot be evaluated, float32 and float64 can"
        )
    return _PRECISIONS[value]


def _degrees(o: dict[str, Any]) -> tuple[int, int, tuple[tuple[int, int], ...]]:
    """Highest degree and order of the first block, and those of every block."""
    degrees = o["l_schedule"]
    degrees = [o["lmax"]] * o["n_blocks"] if degrees is None else list(degrees)
    orders = o["m_schedule"]
    if orders is None:
        orders = [l if o["mmax"] is None else min(o["mmax"], l) for l in degrees]
    if len(orders) != len(degrees) or any(
        m > l for l, m in zip(degrees, orders, strict=False)
    ):
        raise bad_value(
            "descriptor", "m_schedule", orders, f"orders for degrees {degrees}"
        )
    schedule = tuple(zip(degrees, orders, strict=True))
    if schedule:
        return *schedule[0], schedule
    return o["lmax"], min(o["mmax"] or 0, o["lmax"]), ()


def _grids(o: dict[str, Any]) -> tuple[GridOption | None, ...]:
    """Grids of the mixing stack, node-wise, message-node and feed-forward parts."""
    in_stack, in_ffn = o["s2_activation"]
    mlp, branch = _triple(o["grid_mlp"]), _triple(o["grid_branch"])
    kinds = [
        _kind(o["node_wise_s2"], o["node_wise_so3"]),
        _kind(o["message_node_s2"], o["message_node_so3"]),
        _kind(in_ffn, o["ffn_so3_grid"]),
    ]
    products = []
    for kind, with_mlp, n_branches in zip(kinds, mlp, branch, strict=True):
        operation = "branch" if n_branches else "mlp" if with_mlp else "glu"
        products.append(GridOption(kind, operation, n_branches) if kind else None)
    return GridOption("s2") if in_stack else None, *products


def _kind(on_s2: bool, on_so3: bool) -> str | None:
    return "so3" if on_so3 else "s2" if on_s2 else None


def _triple(value: Any) -> list:
    return list(value) if isinstance(value, list | tuple) else [value] * 3


def _depth_attention(o: dict[str, Any]) -> tuple[str, str]:
    full, block = o["full_attn_res"].lower(), o["block_attn_res"].lower()
    if full != "none":
        return "full", full
    return ("none", "none") if block == "none" else ("block", block)


def _node_cartesian(value: Any) -> tuple[str, int] | None:
    """``"mode:n"``, ``"mode"`` (one layer), ``"n"`` (default mode), ``"none"``, empty."""
    text = str(value).lower()
    mode, _, layers = text.partition(":")
    if mode.isdigit():
        mode, layers = "default", mode
    if text in ("none", "") or layers == "0":
        return None
    if mode not in ("default", "parity") or not (layers or "1").isdigit():
        raise bad_value("descriptor", "node_cartesian", value, "default:n or parity:n")
    return mode, int(layers or 1)


def _inner_clamp(o: dict[str, Any]) -> tuple[float, float] | None:
    inner, outer = o["inner_clamp_r_inner"], o["inner_clamp_r_outer"]
    return None if inner is None or outer is None else (float(inner), float(outer))


def _optional_tuple(value: Any) -> tuple | None:
    return None if value is None else tuple(value)
