"""Options of a DPA4 model in the form in which the modules use them."""

from dataclasses import dataclass, replace

__all__ = [
    "DescriptorConfig",
    "FittingConfig",
    "GridOption",
    "ModelConfig",
    "VirtualSpin",
    "rounded_width",
]


def rounded_width(channels: int, glu: bool = True) -> int:
    """Automatic hidden width: 8/3 (gated) or 4 times the channels, rounded up to 32."""
    return 32 * -(-8 * channels // 96) if glu else 32 * -(-4 * channels // 32)


@dataclass(frozen=True)
class GridOption:
    """One grid product: on the sphere ("s2") or the rotations ("so3"), and its operation.

    ``operation`` is "glu", "mlp" or "branch"; ``n_branches`` counts for the last only.
    """

    kind: str
    operation: str = "glu"
    n_branches: int = 0


@dataclass(frozen=True)
class DescriptorConfig:
    """Descriptor options, or those of one block; ``options.py`` reads them from a file.

    The degrees ``lmax`` and ``mmax`` are those of the first block; ``for_block`` gives
    the same options with the degrees of another.
    """

    ntypes: int
    rcut: float
    channels: int
    basis_type: str
    n_radial: int
    radial_mlp: tuple[int, ...]
    env_exp: tuple[int, int]
    edge_norm: bool
    use_env_seed: bool
    lmax: int
    mmax: int
    kmax: int
    extra_node_l: int
    schedule: tuple[tuple[int, int], ...]  # (lmax, mmax) of each block
    mixing_layers: int
    so2_norm: bool
    so2_attn_res: str
    so2_grid: GridOption | None
    radial_so2_mode: str
    radial_so2_rank: int
    n_focus: int
    focus_dim: int
    n_atten_head: int
    atten_f_mix: bool
    atten_v_proj: bool
    atten_o_proj: bool
    edge_cartesian: bool
    node_cartesian: tuple[str, int] | None  # mode and number of layers
    node_wise: GridOption | None
    message_node: GridOption | None
    ffn_grid: GridOption | None
    ffn_neurons: int
    ffn_blocks: int
    sandwich_norm: tuple[bool, bool, bool, bool]
    mlp_bias: bool
    layer_scale: bool
    depth_attention: str  # history of the blocks: "none", "full" or "block"
    depth_query: str  # "independent" or "dependent"
    readout: str
    readout_layers: int
    activation: str
    glu: bool
    charge_spin: bool
    default_charge_spin: tuple[float, float] | None
    magnetic_types: tuple[bool, ...] | None
    bridging: tuple[float, float] | None  # inner and outer radius
    eps: float
    precision: str
    version: float

    @property
    def focus_channels(self) -> int:
        """Channels of one focus stream, C_f."""
        return self.focus_dim or self.channels

    @property
    def hidden_channels(self) -> int:
        """Channels of all focus streams together, H = F C_f."""
        return self.n_focus * self.focus_channels

    @property
    def node_lmax(self) -> int:
        """Highest degree of the node state."""
        return self.lmax + self.extra_node_l

    @property
    def frame_kmax(self) -> int:
        """Highest frame order of the SO(3) grids inside a block."""
        return min(self.kmax, self.lmax)

    @property
    def so2_activation(self) -> str:
        """Activation of the convolution; a grid in the stack fixes it."""
        return "silu" if self.so2_grid else self.activation

    @property
    def uses_frames(self) -> bool:
        """Whether the messages of this block are formed in the frame of the edge."""
        return not self.uses_cartesian and (
            self.mixing_layers > 0
            or self.radial_so2_mode != "none"
            or self.node_wise is not None
        )

    @property
    def uses_cartesian(self) -> bool:
        """Whether the messages of this block are products of 3 x 3 matrices."""
        return self.edge_cartesian and self.lmax in (1, 2)

    @property
    def saved_per_edge(self) -> int:
        """Numbers that the backward pass of a block keeps for each edge, about.

        Rotated, mixed and weighted features of every layer at the hidden width.
        """
        rows = sum((2 if m else 1) * (self.lmax - m + 1) for m in range(self.mmax + 1))
        layers = max(self.mixing_layers - 1, 0) * (2 * rows + self.lmax)
        streams = 2 * rows if self.n_focus > 1 else 0
        packed = (self.lmax + 1) ** 2
        return self.hidden_channels * (3 * packed + 2 * rows + layers + streams + 2)

    def for_block(self, index: int) -> "DescriptorConfig":
        """The options with the degrees of one block."""
        lmax, mmax = self.schedule[index]
        return replace(self, lmax=lmax, mmax=mmax)

    def ffn_channels(self, glu: bool) -> int:
        """Hidden width of a feed-forward network."""
        return self.ffn_neurons or rounded_width(self.channels, glu)


@dataclass(frozen=True)
class FittingConfig:
    """Options of the energy fitting network."""

    neuron: tuple[int, ...]
    activation: str
    precision: str
    numb_fparam: int
    numb_aparam: int
    default_fparam: bool
    aparam_is_mask: bool
    n_cases: int
    case_film: bool
    subtracts_vacuum: bool

    @property
    def n_extra(self) -> int:
        """Inputs beside the descriptor."""
        aparam = 0 if self.aparam_is_mask else self.numb_aparam
        return self.numb_fparam + aparam + (0 if self.case_film else self.n_cases)

    def widths(self, n_in: int) -> list[int]:
        """Hidden widths; 0 in the file means the automatic one for ``n_in`` inputs."""
        return [w or rounded_width(n_in) for w in self.neuron]


@dataclass(frozen=True)
class VirtualSpin:
    """Spins as virtual atoms (scheme "deepspin"), by type of the real atom.

    ``scales`` is the distance of the virtual atom in Å per unit of spin, None for types
    without one; ``max_neighbors`` counts the real neighbours that the format keeps.
    """

    scales: tuple[float | None, ...]
    max_neighbors: int


@dataclass(frozen=True)
class ModelConfig:
    """Everything that determines a DPA4 energy model besides its tensors.

    With ``virtual_spin`` the type map holds every name twice: the second half are the
    types of the virtual atoms, which have no energy of their own.
    """

    type_map: tuple[str, ...]
    descriptor: DescriptorConfig
    fitting: FittingConfig
    pair_exclude_types: tuple[tuple[int, int], ...]
    atom_exclude_types: tuple[int, ...]
    virtual_spin: VirtualSpin | None = None
