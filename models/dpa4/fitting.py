"""Energy fitting: descriptor to one energy per atom."""

from torch import Tensor, nn
from torch.nn import functional as F

from .config import FittingConfig
from .linear import MLPLayer, parameter

__all__ = ["EnergyFitting"]


class GatedLayer(nn.Module):
    """``v * silu(g)`` with ``[v | g] = x W + b``."""

    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        self.matrix = parameter(n_in, 2 * n_out)
        self.bias = parameter(2 * n_out)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = (x @ self.matrix + self.bias).chunk(2, dim=-1)
        return value * F.silu(gate)


class EnergyFitting(nn.Module):
    """Gated layers and a linear output, (N, C) -> (N,)."""

    def __init__(self, config: FittingConfig, n_in: int):
        super().__init__()
        widths = [n_in, *config.widths(n_in)]
        self.hidden_layers = nn.ModuleList(
            GatedLayer(a, b) for a, b in zip(widths[:-1], widths[1:], strict=True)
        )
        self.output_layer = MLPLayer(widths[-1], 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.output_layer.matrix.dtype)
        for layer in self.hidden_layers:
            x = layer(x)
        return self.output_layer(x)[:, 0]
