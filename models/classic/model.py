"""The classic energy models: atomic energies from types and edges."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..edges import EdgeList
from ..exclusions import active_pairs, active_types
from ..inputs import InputSpec
from ..potential import Potential
from .config import ModelConfig
from .dpa1 import DPA1, DPA1Concat
from .fitting import EnergyFitting
from .se_a import SeA
from .se_r import SeR
from .se_t import SeT
from .se_t_tebd import SeTTebd, SeTTebdConcat

__all__ = ["ClassicModel"]

_DESCRIPTORS = {
    ("se_e2_a", "strip"): SeA,
    ("se_e2_r", "strip"): SeR,
    ("se_e3", "strip"): SeT,
    ("se_e3_tebd", "strip"): SeTTebd,
    ("se_e3_tebd", "concat"): SeTTebdConcat,
    ("dpa1", "strip"): DPA1,
    ("dpa1", "concat"): DPA1Concat,
}
_ONE_NET_FOR_ALL_TYPES = ("se_e3_tebd", "dpa1")


class ClassicModel(Potential):
    """Atomic energies of a checkpoint with a classic descriptor.

    Plain PyTorch, right in float32 and float64, on any device, differentiable any number
    of times with respect to ``edges.vec``.

    Attributes:
        architecture: name of the descriptor: se_e2_a, se_e2_r, se_e3, se_e3_tebd or dpa1.
        version: always 1; the format of these descriptors has no versions.
        type_map: element symbol of each type index.
        rcut: cutoff in Å.
        shortest_distance: pairs closer than this (Å) are outside the model's domain.
        min_nbor_dist: shortest distance in the training data in Å, if the file states it.
    """

    version = 1.0
    shortest_distance = 1e-3

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.architecture = config.descriptor.kind
        self.type_map = config.descriptor.type_map
        self.rcut = config.descriptor.rcut
        self.min_nbor_dist: float | None = None
        ntypes = len(self.type_map)
        kind = (self.architecture, config.descriptor.tebd_mode)
        self.descriptor = _DESCRIPTORS[kind](config.descriptor)
        n_nets = 1 if self.architecture in _ONE_NET_FOR_ALL_TYPES else ntypes
        self.fitting = EnergyFitting(config.fitting, self.descriptor.n_out, n_nets)
        # Both energy biases stay in float64 whatever the precision of the weights.
        self.fitting_bias = nn.Buffer(torch.empty(ntypes, 1, device="meta"))
        self.out_bias = nn.Buffer(torch.empty(1, ntypes, 1, device="meta"))
        active = active_types(ntypes, config.atom_exclude_types)
        pairs = active_pairs(ntypes, config.pair_exclude_types)
        self.active_type = nn.Buffer(active, persistent=False)
        self.active_pair = nn.Buffer(pairs, persistent=False)

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What the model reads beside types and edges."""
        return self.fitting.inputs.specs

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the descriptor."""
        return self.descriptor.environment.mean.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are and the inputs must be."""
        return self.out_bias.device

    def forward(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Evaluate atomic energies.

        Args:
            types: index into ``type_map`` of each atom, (N,), int64.
            edges: every pair within ``rcut``; longer edges contribute zero.
            conditions: further inputs by name, those of ``self.inputs``.

        Returns:
            (N,), float64, eV.

        Raises:
            ValueError: an atom has more neighbours than the descriptor has room for.
        """
        descriptor = self.descriptors(types, edges)
        energy = self.fitting(descriptor, types, conditions or {})
        bias = self.fitting_bias[types, 0] + self.out_bias[0, types, 0]
        return (energy.to(torch.float64) + bias) * self.active_type[types]

    def descriptors(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """What describes the environment of each atom; arguments as in ``forward``.

        Returns:
            (N, D), in the precision of the descriptor. The conditions do not matter.
        """
        if self.config.pair_exclude_types:
            edges = edges.select(self.active_pair[types[edges.src], types[edges.dst]])
        return self.descriptor(types, edges)

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
        descriptor = self.descriptors(types, edges)
        return self.fitting.last_hidden(descriptor, types, conditions or {})
