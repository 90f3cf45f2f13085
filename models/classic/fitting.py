"""Energy fitting: descriptor to one energy per atom."""

from collections.abc import Callable, Mapping

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
        return self._with_nets(self._energy, descriptor, types, conditions)

    def last_hidden(
        self, descriptor: Tensor, types: Tensor, conditions: Mapping[str, Tensor]
    ) -> Tensor:
        """Last hidden layer, (N, width); without one the net's input."""
        return self._with_nets(self._hidden, descriptor, types, conditions)

    def _with_nets(
        self,
        function: Callable[[int, Tensor, Tensor | None], Tensor],
        descriptor: Tensor,
        types: Tensor,
        conditions: Mapping[str, Tensor],
    ) -> Tensor:
        """Rows of ``function(net, descriptor, further inputs)``, each with its net."""
        descriptor = descriptor.to(self.networks[0].layers[-1].matrix.dtype)
        extra = self.inputs(len(types), conditions)
        if len(self.networks) == 1:
            return function(0, descriptor, extra)
        atoms = [(types == t).nonzero()[:, 0] for t in range(len(self.networks))]
        parts = [
            function(t, descriptor[of_type], None if extra is None else extra[of_type])
            for t, of_type in enumerate(atoms)
        ]
        return torch.cat(parts).index_select(0, torch.argsort(torch.cat(atoms)))

    def _energy(self, index: int, descriptor: Tensor, extra: Tensor | None) -> Tensor:
        network = self.networks[index]
        energy = network(_joined(descriptor, extra))
        if self._subtracts_vacuum(index):
            energy = energy - network(_joined(torch.zeros_like(descriptor), extra))
        return energy

    def _hidden(self, index: int, descriptor: Tensor, extra: Tensor | None) -> Tensor:
        return self.networks[index].layers[:-1](_joined(descriptor, extra))

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
