"""Options of a DPA4 model as the checkpoint states them, checked before anything is built."""

from dataclasses import dataclass, fields
from typing import Any

__all__ = ["DescriptorConfig", "FittingConfig", "ModelConfig", "UnsupportedOptionError"]


class UnsupportedOptionError(ValueError):
    """The checkpoint uses an option that this version does not have."""


@dataclass(frozen=True)
class DescriptorConfig:
    """Descriptor options with the defaults of the file format.

    Only options that change the energy are kept; those that this version does not build
    are checked against their single supported value, see ``_SINGLE_VALUE``.
    """

    ntypes: int
    rcut: float = 6.0
    channels: int = 64
    basis_type: str = "bessel"
    n_radial: int = 16
    radial_mlp: tuple[int, ...] = (0,)
    env_exp: tuple[int, int] = (7, 5)
    edge_norm: bool = True
    use_env_seed: bool = True
    lmax: int = 3
    mmax: int = 1
    kmax: int = 1
    n_blocks: int = 3
    mixing_layers: int = 4
    radial_so2_mode: str = "degree_channel"
    radial_so2_rank: int = 1
    n_focus: int = 1
    focus_dim: int = 0
    n_atten_head: int = 1
    message_node_so3: bool = False
    ffn_neurons: int = 0
    ffn_so3_grid: bool = False
    grid_branch: int = 0
    so3_readout: str = "none"
    eps: float = 1e-7
    precision: str = "float32"
    version: float = 1.2

    @property
    def focus_channels(self) -> int:
        """Channels of one focus stream, C_f."""
        return self.focus_dim or self.channels

    @property
    def hidden_channels(self) -> int:
        """Channels of all focus streams together, F C_f."""
        return self.n_focus * self.focus_channels

    @property
    def node_lmax(self) -> int:
        """Highest degree of the node state."""
        return self.lmax

    @property
    def block_mmax(self) -> int:
        """Highest order that the blocks keep in the edge frame."""
        return min(self.mmax, self.lmax)

    @property
    def block_kmax(self) -> int:
        """Highest frame order of the SO(3) grids."""
        return min(self.kmax, self.lmax)

    @property
    def ffn_channels(self) -> int:
        """Hidden width of the feed-forward networks: 8 C / 3 rounded up to 32."""
        return self.ffn_neurons or 32 * -(-8 * self.channels // 96)

    @classmethod
    def from_options(cls, options: dict[str, Any], ntypes: int, version: float):
        """Read the ``descriptor`` section of a checkpoint.

        Raises:
            UnsupportedOptionError: an option or value that this version does not build.
        """
        options = {k: v for k, v in options.items() if k not in _NO_EFFECT}
        _apply_legacy_names(options)
        _check_single_values(options)
        _derive(options)
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise UnsupportedOptionError(
                f"descriptor option {', '.join(unknown)} is not known to this version; the "
                "model cannot be evaluated without it"
            )
        config = cls(**{**options, "ntypes": ntypes, "version": version})
        config._check()
        return config

    def _check(self) -> None:
        _one_of("basis_type", self.basis_type, ("bessel", "gaussian"))
        _one_of("radial_so2_mode", self.radial_so2_mode, _RADIAL_MODES)
        _one_of("so3_readout", self.so3_readout, ("none", "mlp"))
        _one_of("precision", self.precision, ("float32", "float64"))
        if self.radial_so2_mode == "degree_channel":
            _at_least("radial_so2_rank", self.radial_so2_rank, 1)
        _at_least("mixing_layers", self.mixing_layers, 1)
        _at_least("lmax", self.lmax, 1)
        if self.n_atten_head and self.focus_channels % self.n_atten_head:
            raise ValueError(
                f"n_atten_head={self.n_atten_head} does not divide the {self.focus_channels} "
                "channels of a focus stream: the checkpoint's options contradict each other"
            )


_RADIAL_MODES = ("none", "degree", "degree_channel")

# Options of training or of other backends: no influence on an energy.
_NO_EFFECT = frozenset(
    "type type_map sel seed trainable random_gamma use_amp s2_grid_resolution "
    "default_chg_spin ntypes exclude_types".split()
)

# Options that exist in the format and here have one supported value. `s2_activation` may be
# [False, True] or [False, False] where `ffn_so3_grid` overrides it, see _derive.
_SINGLE_VALUE: dict[str, Any] = {
    "edge_cartesian": False,
    "node_cartesian": "none",
    "l_schedule": None,
    "m_schedule": None,
    "extra_node_l": 0,
    "so2_norm": False,
    "so2_attn_res": "none",
    "atten_f_mix": False,
    "atten_v_proj": False,
    "atten_o_proj": False,
    "ffn_blocks": 1,
    "sandwich_norm": [False, True, True, False],
    "mlp_bias": False,
    "layer_scale": False,
    "full_attn_res": "none",
    "block_attn_res": "none",
    "node_wise_s2": False,
    "node_wise_so3": False,
    "message_node_s2": False,
    "readout_layers": 1,
    "activation_function": "silu",
    "glu_activation": True,
    "add_chg_spin_ebd": False,
    "use_spin": None,
    "inner_clamp_r_inner": None,
    "inner_clamp_r_outer": None,
}


def _apply_legacy_names(options: dict[str, Any]) -> None:
    if options.get("so2_layers") is not None:
        options["mixing_layers"] = options["so2_layers"]
    options.pop("so2_layers", None)


def _check_single_values(options: dict[str, Any]) -> None:
    for name, supported in _SINGLE_VALUE.items():
        value = options.pop(name, supported)
        value = list(value) if isinstance(value, tuple) else value
        if isinstance(value, str):
            value = value.lower() or "none"
        if value != supported:
            raise UnsupportedOptionError(
                f"descriptor option {name}={value!r} is not built in this version "
                f"(only {name}={supported!r} is)"
            )


def _derive(options: dict[str, Any]) -> None:
    """Bring list-valued and nested options into the form of the dataclass."""
    for name in ("radial_mlp", "env_exp"):
        if name in options:
            options[name] = tuple(options[name])
    for name in ("basis_type", "radial_so2_mode", "so3_readout"):
        if name in options:
            options[name] = str(options[name]).lower()
    if "mmax" in options and options["mmax"] is None:
        options["mmax"] = options.get("lmax", DescriptorConfig.lmax)
    _derive_grids(options)


def _derive_grids(options: dict[str, Any]) -> None:
    """Grid options, stored as one value or as [node-wise, message-node, FFN] / [SO2, FFN]."""
    so2_grid, ffn_grid = options.pop("s2_activation", [False, True])
    if so2_grid:
        raise _unsupported_grid("s2_activation[0]", so2_grid)
    if not (ffn_grid or options.get("ffn_so3_grid", False)):
        raise _unsupported_grid("s2_activation[1]", ffn_grid)
    lebedev = options.pop("lebedev_quadrature", True)
    ffn_lebedev = lebedev[1] if isinstance(lebedev, list | tuple) else lebedev
    if ffn_lebedev is False and not options.get("ffn_so3_grid", False):
        raise _unsupported_grid("lebedev_quadrature", lebedev)
    _, message_mlp, ffn_mlp = _triple(options.pop("grid_mlp", False))
    _, message_branch, ffn_branch = _triple(options.pop("grid_branch", 0))
    if ffn_mlp and not ffn_branch:
        raise _unsupported_grid("grid_mlp", ffn_mlp)
    if options.get("message_node_so3", False) and (message_mlp or message_branch):
        raise _unsupported_grid(
            "grid_mlp or grid_branch of the message-node product", True
        )
    options["grid_branch"] = ffn_branch


def _triple(value: Any) -> list:
    return list(value) if isinstance(value, list | tuple) else [value] * 3


def _unsupported_grid(name: str, value: Any) -> UnsupportedOptionError:
    return UnsupportedOptionError(
        f"descriptor option {name}={value!r} is not built in this version"
    )


def _one_of(name: str, value: str, supported: tuple[str, ...]) -> None:
    if value not in supported:
        raise UnsupportedOptionError(
            f"descriptor option {name}={value!r} is not built in this version (these are: "
            f"{', '.join(supported)})"
        )


def _at_least(name: str, value: int, lowest: int) -> None:
    if value < lowest:
        raise UnsupportedOptionError(
            f"descriptor option {name}={value!r} is not built in this version (only "
            f"{lowest} and more is)"
        )


@dataclass(frozen=True)
class FittingConfig:
    """Options of the energy fitting network."""

    neuron: tuple[int, ...] = (0,)
    precision: str = "float32"

    @classmethod
    def from_options(cls, options: dict[str, Any]):
        """Read the ``fitting_net`` section of a checkpoint.

        Raises:
            UnsupportedOptionError: an option or value that this version does not build.
        """
        options = dict(options)
        for name, supported in _FITTING_SINGLE_VALUE.items():
            value = options.pop(name, supported)
            if name == "atom_ener" and not any(v is not None for v in value or []):
                continue
            if value not in (supported, None):
                raise UnsupportedOptionError(
                    f"fitting_net option {name}={value!r} is not built in this version"
                )
        neuron = options.pop("neuron", options.pop("n_neuron", [0]))
        precision = options.pop("precision", "float32")
        precision = {"default": "float64"}.get(precision, precision)
        _one_of("precision of fitting_net", precision, ("float32", "float64"))
        unknown = sorted(set(options) - _FITTING_NO_EFFECT)
        if unknown:
            raise UnsupportedOptionError(
                f"fitting_net option {', '.join(unknown)} is not known to this version"
            )
        return cls(tuple(neuron), precision)

    def widths(self, n_in: int) -> list[int]:
        """Hidden widths; 0 in the file means 8/3 of the input rounded up to 32."""
        return [w or 32 * -(-8 * n_in // 96) for w in self.neuron]


_FITTING_SINGLE_VALUE: dict[str, Any] = {
    "numb_fparam": 0,
    "numb_aparam": 0,
    "dim_case_embd": 0,
    "activation_function": "silu",
    "atom_ener": [],
    "exclude_types": [],
    "bias_out": False,
}

_FITTING_NO_EFFECT = frozenset(
    "type seed resnet_dt trainable rcond layer_name mixed_types default_fparam "
    "use_aparam_as_mask case_film_embd".split()
)


@dataclass(frozen=True)
class ModelConfig:
    """Everything that determines a DPA4 energy model besides its tensors."""

    type_map: tuple[str, ...]
    descriptor: DescriptorConfig
    fitting: FittingConfig
    pair_exclude_types: tuple[tuple[int, int], ...]
    atom_exclude_types: tuple[int, ...]

    @classmethod
    def from_params(cls, params: dict[str, Any], version: float):
        """Read ``model_params`` of one branch; ``version`` is the descriptor's.

        Raises:
            UnsupportedOptionError: an option or value that this version does not build.
            ValueError: options that contradict each other.
        """
        if str(params.get("bridging_method") or "none").lower() != "none":
            raise UnsupportedOptionError(
                f"model option bridging_method={params['bridging_method']!r} is not built in "
                "this version"
            )
        if params.get("spin") is not None:
            raise UnsupportedOptionError("model option spin is not built in this version")
        if params.get("lora") is not None:
            raise UnsupportedOptionError("model option lora is not built in this version")
        type_map = tuple(params["type_map"])
        descriptor = params["descriptor"]
        return cls(
            type_map=type_map,
            descriptor=DescriptorConfig.from_options(descriptor, len(type_map), version),
            fitting=FittingConfig.from_options(params.get("fitting_net", {})),
            pair_exclude_types=_pair_exclusions(params, descriptor),
            atom_exclude_types=tuple(params.get("atom_exclude_types") or ()),
        )


def _pair_exclusions(params: dict, descriptor: dict) -> tuple[tuple[int, int], ...]:
    """Excluded type pairs; the model's list is the stored form, the descriptor's may be empty."""
    given = "pair_exclude_types" in params
    of_model = _as_pairs(params.get("pair_exclude_types"))
    of_descriptor = _as_pairs(descriptor.get("exclude_types"))
    if given and of_descriptor and of_model != of_descriptor:
        raise ValueError(
            f"pair_exclude_types={list(of_model)} and descriptor.exclude_types="
            f"{list(of_descriptor)} contradict each other: the checkpoint is ambiguous"
        )
    return of_model or of_descriptor


def _as_pairs(value) -> tuple[tuple[int, int], ...]:
    return tuple(sorted({(min(p), max(p)) for p in value or ()}))
