"""What atoms do between linear maps, on the kernels ``norms`` and ``scalar_path``."""

import torch
from torch import Tensor, nn

from ...kernels.norms import balanced_norm, stream_norm
from ...kernels.scalar_path import scalar_path
from .grid_net import ScalarPath
from .linear import expand_degrees
from .norm import EquivariantNorm, ScalarNorm

__all__ = ["fuse_nodes"]


def fuse_nodes(model: nn.Module) -> None:
    """Put the kernels in the place of every norm and scalar path in float32."""
    drop_ins = {
        EquivariantNorm: FusedEquivariantNorm,
        ScalarNorm: FusedScalarNorm,
        ScalarPath: lambda _: FusedScalarPath(),
    }
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) in drop_ins:
                setattr(module, name, drop_ins[type(child)](child))


class FusedEquivariantNorm(nn.Module):
    """Drop-in of ``EquivariantNorm``."""

    def __init__(self, norm: EquivariantNorm):
        super().__init__()
        self.eps = norm.eps
        scale = expand_degrees(norm.adam_scale[:, 0], norm.lmax).detach().contiguous()
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("bias", norm.bias.detach(), persistent=False)
        self.register_buffer("balance", norm.balance_weight, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return balanced_norm(x, self.balance, self.scale, self.bias, self.eps)


class FusedScalarNorm(nn.Module):
    """Drop-in of ``ScalarNorm``."""

    def __init__(self, norm: ScalarNorm):
        super().__init__()
        self.eps = norm.eps
        scale = torch.clone(
            norm.adam_scale.detach(), memory_format=torch.contiguous_format
        )
        self.register_buffer("scale", scale, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return stream_norm(x, self.scale, self.eps)


class FusedScalarPath(nn.Module):
    """Drop-in of ``ScalarPath``."""

    def forward(self, product: Tensor, scalars: Tensor, gate: Tensor) -> Tensor:
        return scalar_path(product, scalars, gate)
