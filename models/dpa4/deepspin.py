"""Spins as virtual atoms, the scheme "deepspin".

Every magnetic atom gets a virtual atom beside it, displaced along its spin, of a type of
its own and without energy. Virtual atoms are neighbours wherever their real atom is one.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..edges import EdgeList
from ..execution import NativeExecutor
from ..inputs import InputSpec
from .config import ModelConfig
from .descriptor import MakeExecutor
from .model import DPA4Model

__all__ = ["DeepSpinModel"]

# The format drops shorter edges, of two atoms at one place; Å squared.
_COINCIDENT = 1e-10

Inputs = tuple[Tensor, EdgeList, dict[str, Tensor]]
Edges = tuple[Tensor, Tensor, Tensor]


class DeepSpinModel(DPA4Model):
    """Atomic energies of a DPA4 checkpoint with virtual atoms.

    Every edge vector is a function of those of the real atoms and of the spins, so forces
    on virtual atoms reach the real ones, and magnetic forces exist, by the chain rule.
    """

    keeps_edges = False

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        scales = config.virtual_spin.scales
        self.type_map = config.type_map[: len(scales)]
        self.max_neighbors = config.virtual_spin.max_neighbors
        magnetic = torch.tensor([s is not None for s in scales])
        self.magnetic = nn.Buffer(magnetic, persistent=False)
        # Of Å per unit of spin; positions keep float64 whatever the precision.
        scale = torch.tensor([s or 0.0 for s in scales], dtype=torch.float64)
        self.virtual_scale = nn.Buffer(scale, persistent=False)

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What the model reads beside types and edges."""
        return (*super().inputs, InputSpec("spin", 3, per_atom=True))

    def forward(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor] | None = None,
        executor: MakeExecutor = NativeExecutor,
    ) -> Tensor:
        """Evaluate the energies of the real atoms; arguments as in ``DPA4Model``.

        Returns:
            (N,), float64, eV.

        Raises:
            ValueError: there is no spin, or an atom has more neighbours than counted.
        """
        inputs = self._with_virtual_atoms(types, edges, conditions or {})
        return super().forward(*inputs, executor)[: len(types)]

    def descriptors(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Descriptors of the real atoms, (N, channels); see ``DPA4Model``."""
        inputs = self._with_virtual_atoms(types, edges, conditions or {})
        return super().descriptors(*inputs)[: len(types)]

    def last_hidden(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Last hidden layer of the real atoms, (N, width); see ``DPA4Model``."""
        conditions = conditions or {}
        return self.fitting.last_hidden(
            self.descriptors(types, edges, conditions), conditions
        )

    def _with_virtual_atoms(
        self, types: Tensor, edges: EdgeList, conditions: Mapping[str, Tensor]
    ) -> Inputs:
        """The same arguments for the system of N real and M virtual atoms."""
        if "spin" not in conditions:
            raise ValueError(
                "this model needs the spin of every atom: conditions['spin']"
            )
        edges = edges.select(edges.vec.detach().norm(dim=1) <= self.rcut)
        self._refuse_crowded(edges)
        magnetic = self.magnetic[types]
        atoms = magnetic.nonzero()[:, 0]
        shift = conditions["spin"].to(edges.vec) * self.virtual_scale[types][:, None]
        all_types = torch.cat([types, types[atoms] + len(self.type_map)])
        all_edges = _extend(edges, shift, magnetic, atoms, self.rcut)
        # What belongs to single atoms, or to one system of several, is the same for a
        # virtual atom as for its real one.
        others = {
            name: torch.cat([value, value[atoms]]) if value.ndim == 2 else value
            for name, value in conditions.items()
            if name != "spin"
        }
        return all_types, all_edges, others

    def _refuse_crowded(self, edges: EdgeList) -> None:
        """Refuse what the format would cut off: neighbours beyond the nearest ones."""
        counts = edges.row_ptr.diff()
        if edges.n_atoms and int(counts.max()) > self.max_neighbors:
            atom = int(counts.argmax())
            raise ValueError(
                f"atom {atom} has {int(counts[atom])} neighbours within {self.rcut:g} Å, "
                f"but this deepspin model counts only the nearest {self.max_neighbors}, "
                "which would make forces jump; use a less dense structure"
            )


def _extend(
    edges: EdgeList, shift: Tensor, magnetic: Tensor, atoms: Tensor, rcut: float
) -> EdgeList:
    """Edges among real and virtual atoms.

    Args:
        edges: among the N real atoms, within the cutoff.
        shift: from each real atom to its virtual one in Å, (N, 3).
        magnetic: whether an atom has a virtual one, (N,).
        atoms: the M atoms that have; the virtual ones follow the real ones in this order.
        rcut: longer edges are left out, in Å.
    """
    n_real, n_all = len(magnetic), len(magnetic) + len(atoms)
    virtual = torch.full_like(magnetic, -1, dtype=torch.int64)
    virtual[atoms] = torch.arange(n_real, n_all, device=atoms.device)
    src, dst, vec = edges.src, edges.dst, edges.vec
    of_src, of_dst = edges.at_src(shift), edges.at_dst(shift)
    from_virtual, to_virtual = magnetic[src], magnetic[dst]
    parts = [
        (src, dst, vec),
        _pick(from_virtual, virtual[src], dst, vec + of_src),
        _pick(to_virtual, src, virtual[dst], vec - of_dst),
        _pick(
            from_virtual & to_virtual, virtual[src], virtual[dst], vec + of_src - of_dst
        ),
        (virtual[atoms], atoms, shift[atoms]),
        (atoms, virtual[atoms], -shift[atoms]),
    ]
    src, dst, vec = (torch.cat(part) for part in zip(*parts, strict=True))
    square = vec.detach().square().sum(1)
    src, dst, vec = _pick((square > _COINCIDENT) & (square <= rcut**2), src, dst, vec)
    order = torch.argsort(dst * n_all + src, stable=True)
    return EdgeList.from_sorted(src[order], dst[order], vec[order], n_all)


def _pick(keep: Tensor, src: Tensor, dst: Tensor, vec: Tensor) -> Edges:
    return src[keep], dst[keep], vec[keep]
