"""Terms of the initial node state from the charge, the spin state, and atomic spins."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .activation import Activation
from .config import DescriptorConfig
from .linear import MLPLayer, constant, parameter

__all__ = ["ChargeSpinEmbedding", "SpinEmbedding", "spin_rows"]

_CHARGE_OFFSET, _N_CHARGES, _N_SPINS = 100, 200, 100


class Table(nn.Module):
    """Learnt vectors by index."""

    def __init__(self, n_rows: int, width: int):
        super().__init__()
        self.adam_type_embedding = parameter(n_rows, width)

    def forward(self, index: Tensor) -> Tensor:
        return self.adam_type_embedding[index]


class ChargeSpinEmbedding(nn.Module):
    """One vector for a whole system from its total charge and spin state."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        width = config.channels
        self.charge_embedding = Table(_N_CHARGES, width)
        self.spin_embedding = Table(_N_SPINS, width)
        self.mix_layer = MLPLayer(2 * width, width, bias=True)
        self.activation = Activation(config.activation)
        default = config.default_charge_spin
        self.default = None if default is None else constant(default)

    def forward(self, conditions: Mapping[str, Tensor]) -> Tensor:
        """Charge (-100..99) and row of the spin table (0..99), (2,) -> (C,).

        Fractions are truncated towards zero, as the format does. Atoms of several systems
        have theirs each, (N, 2) -> (N, C).
        """
        charge_spin = conditions.get("charge_spin", self.default)
        charge, spin = charge_spin.to(torch.int64).unbind(-1)
        rows = self.charge_embedding(charge + _CHARGE_OFFSET), self.spin_embedding(spin)
        return self.activation(self.mix_layer(torch.cat(rows, dim=-1)))


class SpinEmbedding(nn.Module):
    """Terms from the spin vector of each atom; types without spin contribute nothing."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        width = config.channels
        self.activation = Activation(config.activation)
        self.mag_layer1 = MLPLayer(1, width)
        self.mag_layer2 = MLPLayer(width, width)
        self.adam_spin_vec_weight = parameter(config.ntypes, width)
        self.adam_spin_nbr_weight = parameter(config.ntypes, width)
        magnetic = torch.tensor(config.magnetic_types, dtype=torch.float64)
        self.magnetic = nn.Buffer(magnetic, persistent=False)

    def mask(self, types: Tensor, spin: Tensor) -> Tensor:
        """Spins of the magnetic atoms, zero for the others, (N, 3)."""
        return spin * self.magnetic[types][:, None]

    def scalars(self, types: Tensor, spin: Tensor) -> Tensor:
        """Scalar term from the magnitude, (N, C)."""
        size = spin.square().sum(-1, keepdim=True)
        term = self.mag_layer2(self.activation(self.mag_layer1(size)))
        return term * self.magnetic[types][:, None]

    def on_site(self, types: Tensor, spin: Tensor) -> Tensor:
        """Degree-1 rows of an atom from its own spin, (N, 3, C)."""
        return spin_rows(spin)[:, :, None] * self.adam_spin_vec_weight[types][:, None]

    def to_neighbours(self, types: Tensor, spin: Tensor) -> Tensor:
        """Degree-1 rows that an atom sends to its neighbours, (N, 3, C)."""
        return spin_rows(spin)[:, :, None] * self.adam_spin_nbr_weight[types][:, None]


def spin_rows(spin: Tensor) -> Tensor:
    """Degree-1 coefficients of a vector, ``sqrt(2) (-y, -z, x)``, (N, 3) -> (N, 3)."""
    x, y, z = spin.unbind(-1)
    return 2**0.5 * torch.stack([-y, -z, x], dim=-1)
