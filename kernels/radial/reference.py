"""The operator of this folder in plain PyTorch, for any precision and device."""

from math import comb

import torch
from torch import Tensor
from torch.nn import functional as F

from .tables import RadialTables

__all__ = ["radial_features"]


def radial_features(vec: Tensor, tables: RadialTables) -> tuple[Tensor, Tensor]:
    """See ``operators.radial_features``."""
    length = (vec.square().sum(-1) + tables.eps**2).sqrt()
    of_basis, envelope = (
        _envelope(length, rcut, n_terms)
        for rcut, n_terms in zip(tables.rcut, tables.exponents, strict=True)
    )
    r = length[:, None]
    basis = torch.sin(tables.frequencies * r) / r * of_basis[:, None]
    hidden = basis @ tables.hidden
    if tables.hidden_bias is not None:
        hidden = hidden + tables.hidden_bias
    if tables.norm_scale is not None:
        mean = hidden.square().mean(-1, keepdim=True)
        hidden = hidden * torch.rsqrt(mean + tables.norm_eps) * tables.norm_scale
    features = F.silu(hidden) @ tables.out
    if tables.out_bias is not None:
        features = features + tables.out_bias
    if tables.vanishing:
        features = features * envelope[:, None]
    return features, envelope


def _envelope(r: Tensor, rcut: float, n_terms: int) -> Tensor:
    u = ((rcut - r) / rcut).clamp(0, 1)
    return u**4 * sum(comb(k + 3, 3) * (1 - u) ** k for k in range(n_terms))
