"""From ``Atoms`` to everything a model takes, with the warnings that are due."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ase import Atoms
from torch import Tensor

from .committee import members_of
from .inputs import ModelInputs
from .models import EdgeList, Potential
from .neighbors import EdgeBuilder
from .structure import Structure, element_types
from .verlet import Points

__all__ = ["Reader", "System"]


@dataclass(frozen=True)
class System:
    """Arguments of a model for one structure, on its device.

    Attributes:
        types: index into the model's ``type_map``, (N,), int64.
        edges: all pairs within its cutoff.
        conditions: its further inputs by name, float64.
    """

    types: Tensor
    edges: EdgeList
    conditions: dict[str, Tensor]


class Reader:
    """Reads structures for one model. It warns of each thing once.

    Args:
        model: what the structures are read for.
        type_dict: type index of each element, if not as in the model's type map.
        nlist_backend: what finds the pairs, see ``choose_search``.
        neighbor_list: an ASE neighbour-list object to find them with instead.
        skin: what a search reaches beyond the cutoff, in Å.

    Attributes:
        inputs: what the model reads beside the geometry.
        search_is_given: whether the caller chose what finds the pairs.

    Raises:
        TypeError: ``neighbor_list`` is no ASE neighbour list.
        ValueError: an argument cannot be honoured; the message says why.
    """

    def __init__(
        self,
        model: Potential,
        type_dict: Mapping[str, int] | None,
        nlist_backend: str,
        neighbor_list: object | None,
        skin: float = 0.0,
    ):
        self.inputs = ModelInputs(model.inputs)
        self._device, self._type_map = model.device, tuple(model.type_map)
        self._observed = _observed(model)
        self._types = element_types(model.type_map, type_dict)
        self._edges = EdgeBuilder(
            model.rcut,
            model.shortest_distance,
            model.device,
            nlist_backend,
            neighbor_list,
            skin,
        )
        self.search_is_given = nlist_backend != "auto" or neighbor_list is not None
        self._warned: set[str] = set()

    def read(self, atoms: Atoms, lap: Callable[[str], None] = lambda _: None) -> System:
        """Check a structure and copy it.

        Args:
            atoms: the structure.
            lap: told the name of each stage at its end.

        Raises:
            ValueError: it cannot be evaluated; the message says why.
        """
        structure, conditions = self.check(atoms)
        lap("checks")
        points = Points.from_structure(structure, self._device)
        types = structure.types.to(self._device)
        conditions = {name: x.to(self._device) for name, x in conditions.items()}
        lap("transfer")
        edges = self._edges.build(structure, points)
        lap("neighbor list")
        return System(types, edges, conditions)

    def check(self, atoms: Atoms) -> tuple[Structure, dict[str, Tensor]]:
        """Check a structure and copy it, on the CPU and without its edges.

        Returns:
            The geometry, and the further inputs of the model by name.

        Raises:
            ValueError: it cannot be evaluated; the message says why.
        """
        structure = Structure.from_atoms(atoms, self._types)
        conditions = self.inputs.read(atoms)
        self._warn_unobserved(structure)
        self._warn_unread(atoms)
        return structure, conditions

    def find_edges(self, structure: Structure) -> EdgeList:
        """All pairs of a checked structure within the cutoff, on the model's device.

        Raises:
            ValueError: two atoms are too close, or the cell is too small.
        """
        return self._edges.build(structure)

    def _warn_unobserved(self, structure: Structure) -> None:
        present = {self._type_map[t] for t in structure.types.unique().tolist()}
        unseen = self._not_warned_of(sorted(present - self._observed))
        if unseen:
            warnings.warn(
                f"the model was never trained on {', '.join(unseen)}; results for it are "
                "not to be trusted",
                stacklevel=2,
            )

    def _warn_unread(self, atoms: Atoms) -> None:
        unread = self._not_warned_of(self.inputs.unread(atoms))
        if unread:
            warnings.warn(f"this model does not read {', '.join(unread)}", stacklevel=2)

    def _not_warned_of(self, names: Sequence[str]) -> list[str]:
        new = [name for name in names if name not in self._warned]
        self._warned.update(new)
        return new


def _observed(model: Potential) -> set[str]:
    """Elements in the training data of a model, or of all models of a committee."""
    observed = set(model.type_map)
    for member in members_of(model):
        source = getattr(member, "source", None)
        if source is not None and source.observed_types is not None:
            observed &= set(source.observed_types)
    return observed
