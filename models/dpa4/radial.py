"""Functions of the edge length: cutoff envelope, radial basis, radial network."""

from itertools import pairwise
from math import comb

import torch
from torch import Tensor, nn

from .activation import Activation
from .config import DescriptorConfig
from .linear import MLPLayer, constant, parameter
from .norm import rms_normalize

__all__ = ["RADIAL_NORM_EPS", "RadialBasis", "RadialNetwork", "cutoff_envelope"]

RADIAL_NORM_EPS = 1e-7  # fixed in the format, not the option eps


def cutoff_envelope(r: Tensor, rcut: Tensor, exponent: int) -> Tensor:
    """``u^4 sum_k binom(k + 3, 3) (1 - u)^k`` with ``u = (rcut - r) / rcut``, 0 beyond.

    Three times continuously differentiable at the cutoff. ``u`` is formed first because
    ``1 - r / rcut`` would lose relative accuracy near the cutoff.
    """
    u = ((rcut - r) / rcut).clamp(0, 1)
    x = 1 - u
    series = torch.zeros_like(x)
    for k in reversed(range(exponent)):
        series = series * x + comb(k + 3, 3)
    return u.square().square() * series


class RadialBasis(nn.Module):
    """Bessel or Gaussian functions times a cutoff envelope, (E,) -> (E, n_radial)."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.gaussian = config.basis_type == "gaussian"
        self.exponent = config.env_exp[0]
        self.adam_freqs = parameter(1, config.n_radial)
        self.rcut = constant(config.rcut)
        self.width = constant(config.rcut / max(config.n_radial - 1, 1))

    def forward(self, r: Tensor) -> Tensor:
        r = r[:, None]
        if self.gaussian:
            values = torch.exp(-(((r - self.adam_freqs) / self.width) ** 2) / 2)
        else:
            values = torch.sin(self.adam_freqs * r) / r
        return values * cutoff_envelope(r, self.rcut, self.exponent)


class RadialNetwork(nn.Module):
    """Radial basis to values per degree and channel, (E, n_radial) -> (E, L + 1, C)."""

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.n_degrees = config.node_lmax + 1
        widths = [w or config.channels for w in config.radial_mlp]
        sizes = [config.n_radial, *widths, self.n_degrees * config.channels]
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise(sizes[:-1]):
            layers.append(MLPLayer(n_in, n_out))
            if config.edge_norm:
                layers.append(ChannelNorm(n_out))
            layers.append(Activation(config.activation))
        layers.append(MLPLayer(sizes[-2], sizes[-1]))
        self.net = nn.Sequential(*layers)

    def forward(self, basis: Tensor) -> Tensor:
        return self.net(basis).unflatten(-1, (self.n_degrees, -1))


class ChannelNorm(nn.Module):
    """Root-mean-square norm over channels with a learnt scale."""

    def __init__(self, channels: int):
        super().__init__()
        self.adam_scale = parameter(channels)

    def forward(self, x: Tensor) -> Tensor:
        return rms_normalize(x, RADIAL_NORM_EPS) * self.adam_scale
