"""What the functions of a model read of edges, made by kernels."""

from functools import cached_property

from torch import Tensor, nn

from .descriptor import Descriptor
from .embedding import EnvironmentSeed
from .fused_geometry import (
    FusedFrames,
    FusedRadial,
    PlainRadial,
    covers_radial,
    fused_network,
    fused_seed,
)
from .view import DPA4EdgeView

__all__ = ["fuse_view", "projected_radial"]


def fuse_view(descriptor: Descriptor) -> None:
    """Let kernels make what the views of a descriptor show, where they can."""
    descriptor.view_kernels = ViewKernels(descriptor)
    seed = descriptor.initial.env_seed_embedding
    if seed is not None and covers_radial(descriptor.config):
        seed.fused = FusedSeed(descriptor, seed)


def projected_radial(descriptor: Descriptor, projection: Tensor):
    """Radial features times a matrix, see ``PlainRadial``; one kernel where it can."""
    if not covers_radial(descriptor.config):
        return PlainRadial(projection)
    networks = (descriptor.radial_basis, descriptor.radial_embedding)
    return fused_network(descriptor.config, *networks, projection)


class ViewKernels(nn.Module):
    """The kernels that views call.

    Args:
        descriptor: whose edges they see.
    """

    def __init__(self, descriptor: Descriptor):
        super().__init__()
        config = descriptor.config
        self.frames = FusedFrames(config.node_lmax, config.eps, descriptor.device)
        self.radial: FusedRadial | None = None
        if covers_radial(config):
            networks = (descriptor.radial_basis, descriptor.radial_embedding)
            self.radial = fused_network(config, *networks)

    def view(self, layout, vec: Tensor, descriptor: Descriptor) -> DPA4EdgeView:
        """Edges with vectors (E, 3)."""
        return FusedEdgeView(layout, vec, descriptor, self)


class FusedEdgeView(DPA4EdgeView):
    """Drop-in of ``DPA4EdgeView``."""

    def __init__(self, layout, vec: Tensor, descriptor: Descriptor, kernels: ViewKernels):
        super().__init__(layout, vec, descriptor)
        self._kernels = kernels

    @property
    def harmonics(self) -> Tensor:
        """See ``DPA4EdgeView``."""
        return self._kernels.frames(self)[:, 0]

    @property
    def radial(self) -> Tensor:
        """See ``DPA4EdgeView``."""
        if self._kernels.radial is None:
            return super().radial
        n_degrees = self._descriptor.config.node_lmax + 1
        return self._features_and_envelope[0].unflatten(1, (n_degrees, -1))

    @property
    def envelope(self) -> Tensor:
        """See ``DPA4EdgeView``."""
        if self._kernels.radial is None:
            return super().envelope
        return self._features_and_envelope[1]

    @cached_property
    def _features_and_envelope(self) -> tuple[Tensor, Tensor]:
        return self._kernels.radial(self)


class FusedSeed(nn.Module):
    """What ``EnvironmentSeed`` makes of the lengths of edges, in one kernel.

    Args:
        descriptor: whose radial basis the seed reads.
        seed: the seed; its weights are copied.
    """

    def __init__(self, descriptor: Descriptor, seed: EnvironmentSeed):
        super().__init__()
        self.radial = fused_seed(descriptor.config, descriptor.radial_basis, seed)

    def forward(self, view: DPA4EdgeView) -> Tensor:
        """(E, H)."""
        return self.radial(view)[0]
