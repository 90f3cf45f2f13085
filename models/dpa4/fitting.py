"""Energy fitting: descriptor to one energy per atom."""

from collections.abc import Callable, Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from .activation import Activation
from .config import FittingConfig
from .fitting_inputs import FittingInputs
from .linear import MLPLayer, parameter

__all__ = ["EnergyFitting"]


class GatedLayer(MLPLayer):
    """``v * act(g)`` with ``[v | g] = x W + b``."""

    def __init__(self, n_in: int, n_out: int, activation: str):
        super().__init__(n_in, 2 * n_out, bias=True)
        self.activation = Activation(activation)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = super().forward(x).chunk(2, dim=-1)
        return value * self.activation(gate)


class EnergyFitting(nn.Module):
    """Gated layers and a linear output, (N, C) -> (N,)."""

    def __init__(self, config: FittingConfig, channels: int):
        super().__init__()
        n_in = channels + config.n_extra
        self.inputs = FittingInputs(config)
        widths = [n_in, *config.widths(n_in)]
        self.hidden_layers = nn.ModuleList(
            GatedLayer(a, b, config.activation) for a, b in pairwise(widths)
        )
        self.output_layer = MLPLayer(widths[-1], 1)
        self.case_film = (
            CaseFilm(config, channels, widths[1:]) if config.case_film else None
        )
        self.subtracts_vacuum = config.subtracts_vacuum

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the network."""
        return self.output_layer.matrix.dtype

    def forward(self, descriptor: Tensor, conditions: Mapping[str, Tensor]) -> Tensor:
        """Descriptor (N, C) and further inputs by name -> (N,)."""
        descriptor = descriptor.to(self.dtype)
        extra = self.inputs(len(descriptor), conditions)
        energy = self._network(descriptor, extra)
        if self.subtracts_vacuum:
            energy = energy - self._network(torch.zeros_like(descriptor), extra)
        return energy

    def last_hidden(self, descriptor: Tensor, conditions: Mapping[str, Tensor]) -> Tensor:
        """Output of the last hidden layer, (N, C) -> (N, width)."""
        descriptor = descriptor.to(self.dtype)
        return self._hidden(descriptor, self.inputs(len(descriptor), conditions))

    def _network(self, x: Tensor, extra: Tensor | None) -> Tensor:
        return self.output_layer(self._hidden(x, extra))[:, 0]

    def _hidden(self, x: Tensor, extra: Tensor | None) -> Tensor:
        film = None if self.case_film is None else self.case_film(self.inputs.case_embd)
        if film is not None:
            x = film(0, x)
        if extra is not None:
            x = torch.cat([x, extra], dim=1)
        for i, layer in enumerate(self.hidden_layers, start=1):
            x = layer(x)
            if film is not None:
                x = film(i, x)
        return x


class CaseFilm(nn.Module):
    """Modulation of the descriptor and of each hidden layer by the model's branch."""

    def __init__(self, config: FittingConfig, channels: int, hidden: list[int]):
        super().__init__()
        width = 32 * -(-4 * config.n_cases // 32)
        self.case_layer1 = MLPLayer(config.n_cases, width)
        self.activation = Activation(config.activation)
        self.case_layer2 = MLPLayer(width, 4 * channels)
        targets = [channels, *hidden]
        self.projectors = nn.ParameterList(
            parameter(4 * channels, 2 * w) for w in targets
        )
        self.adam_case_film_scale_strength_log = parameter(len(targets))
        self.adam_case_film_shift_strength_log = parameter(len(targets))

    def forward(self, case: Tensor) -> Callable[[int, Tensor], Tensor]:
        """Branch vector (K,) -> a function of the target's index and values (N, w)."""
        code = self.case_layer2(self.activation(self.case_layer1(case)))

        def modulate(target: int, x: Tensor) -> Tensor:
            scale, shift = (code @ self.projectors[target]).tanh().chunk(2)
            gain = 1 + self.adam_case_film_scale_strength_log[target].exp() * scale
            return x * gain + self.adam_case_film_shift_strength_log[target].exp() * shift

        return modulate
