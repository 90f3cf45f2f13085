"""Energy fitting: descriptor to one energy per atom."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..dpa4.fitting_inputs import FittingInputs
from .config import FittingConfig
from .networks import FittingNet

__all__ = ["EnergyFitting"]


class EnergyFitting(nn.Module):
    """A net per type, or one for all types, on the descriptor and further inputs.

    Args:
        config: options.
        n_descriptor: width of the descriptor.
        n_nets: number of types, or 1 for a net that serves all of them.
    """

    def __init__(self, config: FittingConfig, n_descriptor: int, n_nets: int):
        super().__init__()
        self.config = config
        n_in = n_descriptor + config.n_extra
        self.networks = nn.ModuleList(FittingNet(n_in, config) for _ in range(n_nets))
        self.inputs = FittingInputs(config)

    def forward(
        self, descriptor: Tensor, types: Tensor, conditions: Mapping[str, Tensor]
    ) -> Tensor:
        """Evaluate, (N, D) -> (N,)."""
        dtype = self.networks[0].layers[-1].matrix.dtype
        descriptor = descriptor.to(dtype)
        extra = self.inputs(len(types), conditions)
        if len(self.networks) == 1:
            return self._energy(0, descriptor, extra)
        energy = descriptor.new_zeros(len(types))
        for t in range(len(self.networks)):
            atoms = (types == t).nonzero()[:, 0]
            of_type = None if extra is None else extra[atoms]
            part = self._energy(t, descriptor.index_select(0, atoms), of_type)
            energy = energy.index_copy(0, atoms, part)
        return energy

    def _energy(self, index: int, descriptor: Tensor, extra: Tensor | None) -> Tensor:
        network = self.networks[index]
        energy = network(_joined(descriptor, extra))
        if self._subtracts_vacuum(index):
            energy = energy - network(_joined(torch.zeros_like(descriptor), extra))
        return energy

    def _subtracts_vacuum(self, index: int) -> bool:
        """Whether a net counts from a lone atom, whose descriptor is taken as zero.

        Types beyond the end of the list count from it too.
        """
        vacuum = self.config.vacuum
        if len(self.networks) == 1 or index >= len(vacuum):
            return any(vacuum)
        return vacuum[index]


def _joined(descriptor: Tensor, extra: Tensor | None) -> Tensor:
    return descriptor if extra is None else torch.cat([descriptor, extra], dim=1)
