"""Committees: several models on one neighbour list, their mean and their spread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .engine import Engine, Outputs
from .models import EdgeList, InputSpec, Potential
from .settings import Settings
from .verlet import squared_lengths

__all__ = [
    "Committee",
    "CommitteeEngine",
    "CommitteeOutputs",
    "combine",
    "make_engine",
    "members_of",
]


class Committee(Potential):
    """Models of the same elements as one model, whose energies are the mean of theirs.

    Cutoffs may differ: edges go up to the largest, and each model gets those within its
    own. So may the order of elements; types count as in the first model.

    Args:
        members: two models or more, on one device and in one precision.

    Raises:
        ValueError: they do not fit together; the message says why.
    """

    architecture = "committee"
    members: Sequence[Potential]

    def __init__(self, members: Sequence[Potential]):
        super().__init__()
        _refuse_unlike(members)
        first = members[0]
        self.members = nn.ModuleList(members)  # type: ignore[assignment]
        self.type_map = tuple(first.type_map)
        self.rcut = max(member.rcut for member in members)
        self.shortest_distance = max(member.shortest_distance for member in members)

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What all models read beside types and edges."""
        return self.members[0].inputs

    @property
    def device(self) -> torch.device:
        """Where all models are."""
        return self.members[0].device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of all models."""
        return self.members[0].dtype

    def forward(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Mean energy of each atom in eV, (N,), float64."""
        energies = [
            member(*self.seen_by(member, types, edges), conditions)
            for member in self.members
        ]
        return torch.stack(energies).mean(0)

    def seen_by(
        self, member: Potential, types: Tensor, edges: EdgeList
    ) -> tuple[Tensor, EdgeList]:
        """Types and edges of the committee as one of its members counts them."""
        if tuple(member.type_map) != self.type_map:
            order = [member.type_map.index(symbol) for symbol in self.type_map]
            types = torch.tensor(order, device=types.device)[types]
        if member.rcut < self.rcut:
            # The comparison by which edges are found, so the same edges.
            near = squared_lengths(edges.vec.detach()) <= member.rcut**2
            edges = edges.select(near)
        return types, edges


@dataclass(frozen=True, kw_only=True)
class CommitteeOutputs(Outputs):
    """Means over a committee, and how far its models are apart.

    Standard deviations are those of the models at hand: divided by their number M, not by
    M - 1.

    Attributes:
        energy_std: of the total energy in eV, ().
        forces_std: of each component of each force in eV/Å, (N, 3).
    """

    energy_std: Tensor
    forces_std: Tensor


class CommitteeEngine:
    """Runs the models of a committee one after the other, each as its settings say.

    Args:
        committee: the models.
        settings: how to run each.
    """

    def __init__(self, committee: Committee, settings: Settings):
        self.committee = committee
        self.engines = [Engine(member, settings) for member in committee.members]

    def evaluate(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor] | None = None,
    ) -> CommitteeOutputs:
        """Compute means and standard deviations; see ``Engine.evaluate``."""
        return combine(self.evaluate_each(types, edges, conditions))

    def evaluate_each(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor] | None = None,
    ) -> list[Outputs]:
        """What each model gives by itself, to be combined structure by structure."""
        outputs = []
        for member, engine in zip(self.committee.members, self.engines, strict=True):
            seen = self.committee.seen_by(member, types, edges)
            outputs.append(engine.evaluate(*seen, conditions))
        return outputs


def combine(outputs: Sequence[Outputs]) -> CommitteeOutputs:
    """Means and standard deviations of what several models gave for one structure."""
    energies = torch.stack([output.energy for output in outputs])
    forces = torch.stack([output.forces for output in outputs])
    magnetic = [x.magnetic_forces for x in outputs if x.magnetic_forces is not None]
    return CommitteeOutputs(
        energies=torch.stack([output.energies for output in outputs]).mean(0),
        forces=forces.mean(0),
        atomic_virials=torch.stack([output.atomic_virials for output in outputs]).mean(0),
        magnetic_forces=torch.stack(magnetic).mean(0) if magnetic else None,
        energy_std=energies.std(correction=0),
        forces_std=forces.std(0, correction=0),
    )


def make_engine(model: Potential, settings: Settings) -> Engine | CommitteeEngine:
    """What evaluates a model or a committee."""
    if isinstance(model, Committee):
        return CommitteeEngine(model, settings)
    return Engine(model, settings)


def members_of(model: Potential) -> Sequence[Potential]:
    """The models of a committee; of any other model itself."""
    return list(model.members) if isinstance(model, Committee) else [model]


def _refuse_unlike(members: Sequence[Potential]) -> None:
    if len(members) < 2:
        raise ValueError(
            f"a committee needs two models or more, not {len(members)}; give a single "
            "model by itself, without a list"
        )
    first = members[0]
    for number, member in enumerate(members[1:], 2):
        apart = set(first.type_map) ^ set(member.type_map)
        if apart:
            raise ValueError(
                f"models 1 and {number} of the committee differ in {_listed(apart)}; all "
                "must know the same elements"
            )
        for what in ("inputs", "device", "dtype"):
            one, other = getattr(first, what), getattr(member, what)
            if one != other:
                raise ValueError(
                    f"models 1 and {number} of the committee {_DIFFERENCE[what]}: "
                    f"{_spell(one)} and {_spell(other)}{_REMEDY[what]}"
                )


_DIFFERENCE = {
    "inputs": "read different things from a structure",
    "device": "are on different devices",
    "dtype": "have different precisions",
}
_REMEDY = {
    "inputs": "; all must read the same",
    "device": "; load them on one device",
    "dtype": "; give dtype for all of them",
}


def _spell(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(spec.name for spec in value) or "nothing further"
    return str(value).removeprefix("torch.")


def _listed(symbols: set[str]) -> str:
    return ", ".join(sorted(symbols))
