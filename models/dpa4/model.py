"""The DPA4 energy model: atomic energies from types and edges."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..edges import EdgeList
from ..exclusions import active_pairs, active_types
from ..execution import NativeExecutor
from ..inputs import InputSpec
from ..potential import Potential
from .bridging import ZBLPotential
from .config import ModelConfig
from .descriptor import Descriptor, MakeExecutor
from .fitting import EnergyFitting

__all__ = ["DPA4Model"]


class DPA4Model(Potential):
    """Atomic energies of a DPA4 checkpoint.

    Plain PyTorch, right in float32 and float64, on any device, differentiable any number
    of times with respect to ``edges.vec`` and ``spin``.

    Attributes:
        architecture: name of the model family.
        version: version of the descriptor's format.
        type_map: element symbol of each type index.
        rcut: cutoff in Å.
        shortest_distance: pairs closer than this (Å) are outside the model's domain.
        kernel_options: how kernels run its edges, see ``fused.fuse``; None without.
    """

    architecture = "DPA4"

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.kernel_options: object | None = None
        self.type_map = config.type_map
        self.rcut = config.descriptor.rcut
        self.version = config.descriptor.version
        bridged = config.descriptor.bridging is not None
        self.shortest_distance = 0.0 if bridged else 1e-3
        ntypes = len(config.type_map)
        active = active_types(ntypes, config.atom_exclude_types)
        pairs = active_pairs(ntypes, config.pair_exclude_types)
        self.active_type = nn.Buffer(active, persistent=False)
        self.active_pair = nn.Buffer(pairs, persistent=False)
        self.descriptor = Descriptor(config.descriptor)
        self.fitting = EnergyFitting(config.fitting, config.descriptor.channels)
        self.inter_potential = (
            ZBLPotential(ntypes, self.rcut, active) if bridged else None
        )
        # Both energy biases stay in float64 whatever the precision of the weights.
        self.fitting_bias = nn.Buffer(torch.empty(ntypes, 1, device="meta"))
        self.out_bias = nn.Buffer(torch.empty(1, ntypes, 1, device="meta"))

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What the model reads beside types and edges."""
        return (*self.descriptor.inputs, *self.fitting.inputs.specs)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the descriptor."""
        return self.descriptor.dtype

    @property
    def keeps_edges(self) -> bool:
        """Whether the edges given are those gone over: all of them, and no others."""
        return not self.config.pair_exclude_types

    @property
    def bytes_per_edge(self) -> int:
        """Memory that a backward pass over all edges at once keeps for each, about."""
        config = self.config.descriptor
        blocks = (config.for_block(i) for i in range(len(config.schedule)))
        return self.dtype.itemsize * sum(c.saved_per_edge for c in blocks)

    @property
    def device(self) -> torch.device:
        """Where the weights are and the inputs must be."""
        return self.out_bias.device

    def forward(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor] | None = None,
        executor: MakeExecutor = NativeExecutor,
    ) -> Tensor:
        """Evaluate atomic energies.

        Args:
            types: index into ``type_map`` of each atom, (N,), int64.
            edges: every pair within ``rcut``; longer edges contribute zero.
            conditions: further inputs by name, those of ``self.inputs``.
            executor: how edges and atoms are gone over, see ``execution.py``.

        Returns:
            (N,), float64, eV.
        """
        conditions = conditions or {}
        edges = self._interacting(types, edges)
        descriptor = self.descriptor(types, edges, conditions, executor)
        energy = self.fitting(descriptor, conditions)
        energy = energy + self.fitting_bias[types, 0].to(energy.dtype)
        energy = energy.to(torch.float64) + self.out_bias[0, types, 0]
        if self.inter_potential is not None:
            energy = energy + self.inter_potential(types, edges)
        return energy * self.active_type[types]

    def descriptors(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """What describes the environment of each atom; arguments as in ``forward``.

        Returns:
            (N, channels), in the precision of the descriptor.
        """
        return self.descriptor(types, self._interacting(types, edges), conditions or {})

    def last_hidden(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Last hidden layer of the fitting net; arguments as in ``forward``.

        Returns:
            (N, width), in the precision of the fitting net; without a hidden layer its
            input.
        """
        conditions = conditions or {}
        return self.fitting.last_hidden(
            self.descriptors(types, edges, conditions), conditions
        )

    def _interacting(self, types: Tensor, edges: EdgeList) -> EdgeList:
        """The edges without those of excluded pairs of types."""
        if not self.config.pair_exclude_types:
            return edges
        return edges.select(self.active_pair[types[edges.src], types[edges.dst]])
