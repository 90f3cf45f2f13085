"""Options of a classic model in the form in which the modules use them."""

from dataclasses import dataclass

__all__ = ["DescriptorConfig", "FittingConfig", "ModelConfig"]


@dataclass(frozen=True)
class DescriptorConfig:
    """Descriptor options; ``options.py`` reads them from a file.

    ``sel`` is the number of neighbours that the descriptor has room for: of each type
    where types are told apart, else of all types together. The options from
    ``type_one_side`` on are those of some kinds only.
    """

    kind: str
    type_map: tuple[str, ...]
    rcut: float
    rcut_smth: float
    sel: tuple[int, ...]
    neuron: tuple[int, ...]
    activation: str
    resnet_dt: bool
    exclude_types: tuple[tuple[int, int], ...]
    env_protection: float
    precision: str
    type_one_side: bool = True
    axis_neuron: int = 0
    tebd_dim: int = 0
    tebd_mode: str = "strip"  # or "concat": the embedding net reads the type vectors
    tebd_bias: bool = False
    concat_tebd: bool = False
    smooth: bool = True

    @property
    def ntypes(self) -> int:
        """Number of types T."""
        return len(self.type_map)

    @property
    def n_slots(self) -> int:
        """Number of neighbours, present and absent, that the descriptor averages over."""
        return sum(self.sel)

    @property
    def channels(self) -> int:
        """Outputs of an embedding net, K."""
        return self.neuron[-1]


@dataclass(frozen=True)
class FittingConfig:
    """Options of the energy fitting net."""

    neuron: tuple[int, ...]
    activation: str
    resnet_dt: bool
    precision: str
    numb_fparam: int
    numb_aparam: int
    default_fparam: bool
    aparam_is_mask: bool
    n_cases: int
    vacuum: tuple[bool, ...]  # types whose energy of a lone atom is subtracted
    case_film: bool = False

    @property
    def n_extra(self) -> int:
        """Inputs beside the descriptor."""
        aparam = 0 if self.aparam_is_mask else self.numb_aparam
        return self.numb_fparam + aparam + self.n_cases


@dataclass(frozen=True)
class ModelConfig:
    """Everything that determines a classic energy model besides its tensors."""

    descriptor: DescriptorConfig
    fitting: FittingConfig
    pair_exclude_types: tuple[tuple[int, int], ...]
    atom_exclude_types: tuple[int, ...]
