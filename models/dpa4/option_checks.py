"""Values that descriptor options may have, and combinations that rule each other out.

A value outside the format would otherwise fail far from its cause, or change the energy
without a trace.
"""

from typing import Any

from ..errors import UnsupportedOptionError
from .activation import is_activation

__all__ = ["bad_value", "check_combinations", "check_values"]

_ATTENTION = ("none", "independent", "dependent")
_CHOICES = {
    "basis_type": ("bessel", "gaussian"),
    "radial_so2_mode": ("none", "degree", "degree_channel"),
    "so3_readout": ("none", "glu", "mlp"),
    "so2_attn_res": _ATTENTION,
    "full_attn_res": _ATTENTION,
    "block_attn_res": _ATTENTION,
}
# Least value of a number, and of every number in a list.
_AT_LEAST = {
    "channels": 1, "n_radial": 1, "radial_mlp": 0, "env_exp": 1, "lmax": 0, "n_blocks": 0,
    "l_schedule": 0, "mmax": 0, "m_schedule": 0, "kmax": 0, "extra_node_l": 0,
    "mixing_layers": 0, "radial_so2_rank": 0, "n_focus": 1, "focus_dim": 0,
    "n_atten_head": 0, "ffn_neurons": 0, "ffn_blocks": 1, "readout_layers": 1,
    "grid_branch": 0,
}  # fmt: skip
# A wrong number would otherwise fill the memory before anything else is noticed.
_AT_MOST = 100_000
_MOST_LAYERS = 1000
_LAYERS = ("n_blocks", "mixing_layers", "ffn_blocks", "readout_layers", "n_focus")
_LENGTHS = {"env_exp": 2, "sandwich_norm": 4, "s2_activation": 2, "grid_mlp": 3,
            "grid_branch": 3, "lebedev_quadrature": 2, "default_chg_spin": 2}  # fmt: skip
# The format's rotations deviate by eps^2 from orthogonal ones; the exact ones used here
# agree with them to 1e-9 only up to this floor.
_LARGEST_EPS = 1e-6
# Rotations and grids were compared with other implementations up to here.
_LARGEST_DEGREE = 12
_NONZERO_AT_ZERO = ("sigmoid", "softplus")
_GRID_PRODUCTS = ("node_wise_s2", "node_wise_so3", "message_node_s2", "message_node_so3")


def bad_value(
    section: str, name: str, value: Any, expected: str
) -> UnsupportedOptionError:
    """The error for a value outside the format."""
    return UnsupportedOptionError(
        f"{section} option {name}={value!r} is not known to this version (expected "
        f"{expected})"
    )


def check_values(o: dict[str, Any]) -> None:
    """Refuse values outside the format, each by name."""
    for name, values in _CHOICES.items():
        if str(o[name]).lower() not in values:
            raise _bad(o, name, "one of " + ", ".join(values))
    for name, length in _LENGTHS.items():
        if isinstance(o[name], list | tuple) and len(o[name]) != length:
            raise _bad(o, name, f"{length} values")
    for name, least in _AT_LEAST.items():
        numbers = o[name] if isinstance(o[name], list | tuple) else [o[name]]
        if any(n is not None and n < least for n in numbers):
            raise _bad(o, name, f"at least {least}")
        most = _MOST_LAYERS if name in _LAYERS else _AT_MOST
        if any(n is not None and n > most for n in numbers):
            raise _bad(o, name, f"at most {most}")
    if not is_activation(o["activation_function"]):
        raise _bad(o, "activation_function", "a known name")
    if o["rcut"] <= 0:
        raise _bad(o, "rcut", "a length in Å")
    if not 0 < o["eps"] <= _LARGEST_EPS:
        raise _bad(o, "eps", f"above 0, at most {_LARGEST_EPS:g}")


def check_combinations(
    o: dict[str, Any],
    schedule: tuple[tuple[int, int], ...],
    version: float,
    with_spin: bool,
) -> None:
    """Refuse options that the format does not combine.

    Args:
        o: all options.
        schedule: highest degree and order of each block.
        version: version of the descriptor's format.
        with_spin: whether atoms carry native spins, which are of degree one.
    """
    degrees = [l for l, _ in schedule] or [o["lmax"]]
    if degrees[0] + o["extra_node_l"] > _LARGEST_DEGREE:
        name = "lmax" if o["l_schedule"] is None else "l_schedule"
        raise _bad(o, name, f"at most {_LARGEST_DEGREE} together with extra_node_l")
    if degrees != sorted(degrees, reverse=True):
        raise _bad(o, "l_schedule", "degrees that never rise from block to block")
    if with_spin and degrees[0] + o["extra_node_l"] == 0:
        raise _bad(o, "lmax", "at least 1 in a model with spins")
    if o["kmax"] > degrees[0]:
        raise _bad(o, "kmax", f"at most {degrees[0]}, the degree of the first block")
    width = (o["focus_dim"] or o["channels"]) * (o["n_focus"] if o["atten_f_mix"] else 1)
    if o["n_atten_head"] and width % o["n_atten_head"]:
        raise _bad(o, "n_atten_head", f"a divisor of {width} channels")
    if "none" not in (o["full_attn_res"].lower(), o["block_attn_res"].lower()):
        raise _bad(o, "block_attn_res", "none beside full_attn_res")
    in_cartesian = o["edge_cartesian"] and {1, 2} & {l for l, _ in schedule}
    for name in _GRID_PRODUCTS if in_cartesian else ():
        if o[name]:
            raise _bad(o, name, "False beside edge_cartesian")
    _check_coarse_grid(o, schedule)
    _check_old_version(o, degrees[0] + o["extra_node_l"], version)


def _check_coarse_grid(o: dict[str, Any], schedule: tuple[tuple[int, int], ...]) -> None:
    """Below order 4 the product grid is exact and equals any other exact rule."""
    lebedev = o["lebedev_quadrature"]
    lebedev = lebedev[0] if isinstance(lebedev, list | tuple) else lebedev
    on_s2 = o["s2_activation"][0] or (o["node_wise_s2"] and not o["node_wise_so3"])
    if on_s2 and lebedev is False and max((m for _, m in schedule), default=0) >= 4:
        raise UnsupportedOptionError(
            "descriptor options s2_activation[0] or node_wise_s2 with "
            "lebedev_quadrature[0]=False and orders of 4 and more are not supported: "
            "that grid is too coarse to be rotation invariant"
        )


def _check_old_version(o: dict[str, Any], node_lmax: int, version: float) -> None:
    """Before version 1.1 nothing makes the radial features vanish at the cutoff."""
    activation = o["activation_function"].lower()
    if (
        version < 1.1
        and activation in _NONZERO_AT_ZERO
        and o["radial_mlp"]
        and o["use_env_seed"]
        and node_lmax > 0
    ):
        raise UnsupportedOptionError(
            f"descriptor option activation_function={activation!r} is not supported in "
            f"files of version {version:g}: their energies depend on which atom is first"
        )


def _bad(o: dict[str, Any], name: str, expected: str) -> UnsupportedOptionError:
    return bad_value("descriptor", name, o[name], expected)
