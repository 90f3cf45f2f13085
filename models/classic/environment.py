"""The environment matrix: neighbour vectors as smooth, normalised rows."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..edges import EdgeList
from ..exclusions import active_pairs
from .config import DescriptorConfig
from .slots import Slots

__all__ = ["Environment", "Neighbours", "switch"]

# A neighbour of less weight counts as absent: in float32 its row would be zero, by which
# the tabulated sums know free places.
_NEGLIGIBLE = 1e-30


def switch(length: Tensor, start: float, stop: float) -> Tensor:
    """Smooth weight: 1 up to ``start``, 0 from ``stop`` on, twice differentiable.

    ``1 - 10 q^3 + 15 q^4 - 6 q^5`` in the form that keeps its zero of third order at
    ``q = 1`` free of rounding: a neighbour just inside the cutoff has a non-zero weight.
    """
    q = ((length - start) / (stop - start)).clamp(0, 1)
    return (1 - q) ** 3 * (1 + 3 * q + 6 * q * q)


@dataclass(frozen=True)
class Neighbours:
    """What a descriptor sees of the neighbours within the cutoff.

    Attributes:
        types: type of each atom, (N,).
        edges: neighbours that take part, that is without the excluded pairs.
        rows: normalised environment matrix, (E, M) with M = 4, or 1 if radial.
        weight: switch of each edge, (E,).
        n_absent: free slots of each atom and block, (N, B).
        n_excluded: slots taken by excluded neighbours, (N, B).
    """

    types: Tensor
    edges: EdgeList
    rows: Tensor
    weight: Tensor
    n_absent: Tensor
    n_excluded: Tensor

    @property
    def source_types(self) -> Tensor:
        """Type of each edge's neighbour, (E,)."""
        return self.types[self.edges.src]

    @property
    def centre_types(self) -> Tensor:
        """Type of each edge's centre, (E,)."""
        return self.types[self.edges.dst]

    def block(self, neighbour_type: int, centre_type: int | None = None) -> Slots:
        """Neighbours of one type, of all centres or of those of one type."""
        keep = self.source_types == neighbour_type
        if centre_type is None:
            return Slots.of(self.edges.dst, self.edges.n_atoms, keep)
        keep = keep & (self.centre_types == centre_type)
        return Slots.of(
            self.edges.dst, self.edges.n_atoms, keep, self.types == centre_type
        )

    def all(self) -> Slots:
        """All neighbours of every centre."""
        return Slots.of(self.edges.dst, self.edges.n_atoms)


class Environment(nn.Module):
    """Rows ``((1/r, x/r^2, y/r^2, z/r^2) w(r) - mean) / stddev`` of the neighbours.

    An absent neighbour counts as a row of raw zeros, an excluded one as a row of
    normalised zeros. The geometry is evaluated in float64.
    """

    def __init__(self, config: DescriptorConfig):
        super().__init__()
        self.config = config
        n_rows = 1 if config.kind == "se_e2_r" else 4
        self.mean = nn.Buffer(torch.empty(config.ntypes, n_rows, device="meta"))
        self.stddev = nn.Buffer(torch.empty(config.ntypes, n_rows, device="meta"))
        excluded = ~active_pairs(config.ntypes, config.exclude_types)
        self.excluded = nn.Buffer(excluded, persistent=False)
        self.sel = nn.Buffer(torch.tensor(config.sel), persistent=False)

    @property
    def absent_rows(self) -> Tensor:
        """Row of an absent neighbour by centre type, (T, M)."""
        return -self.mean / self.stddev

    def forward(self, types: Tensor, edges: EdgeList) -> Neighbours:
        """Evaluate.

        Raises:
            ValueError: an atom has more neighbours than the model has room for.
        """
        length = edges.vec.detach().norm(dim=1)
        weight = switch(length, self.config.rcut_smth, self.config.rcut)
        edges = edges.select(weight > _NEGLIGIBLE)
        present = self._count(types, edges)
        self._check_room(present)
        if self.config.exclude_types:
            edges = edges.select(~self.excluded[types[edges.dst], types[edges.src]])
        rows, weight = self._rows(types, edges)
        return Neighbours(
            types=types,
            edges=edges,
            rows=rows,
            weight=weight,
            n_absent=(self.sel - present).to(rows.dtype),
            n_excluded=(present - self._count(types, edges)).to(rows.dtype),
        )

    def _rows(self, types: Tensor, edges: EdgeList) -> tuple[Tensor, Tensor]:
        c, dtype = self.config, self.mean.dtype
        length = edges.vec.square().sum(1, keepdim=True).sqrt()
        weight = switch(length, c.rcut_smth, c.rcut)
        inverse = 1 / (length + c.env_protection)
        rows = inverse * weight
        if self.mean.shape[1] == 4:
            rows = torch.cat([rows, edges.vec * inverse.square() * weight], dim=1)
        centre = types[edges.dst]
        mean, stddev = self.mean[centre].double(), self.stddev[centre].double()
        return ((rows - mean) / stddev).to(dtype), weight[:, 0].to(dtype)

    def _count(self, types: Tensor, edges: EdgeList) -> Tensor:
        """Neighbours of each atom in each block, (N, B)."""
        n_blocks = len(self.config.sel)
        block = edges.dst * n_blocks
        if n_blocks > 1:
            block = block + types[edges.src]
        counts = torch.bincount(block, minlength=edges.n_atoms * n_blocks)
        return counts.reshape(edges.n_atoms, n_blocks)

    def _check_room(self, present: Tensor) -> None:
        crowded = present > self.sel
        if not crowded.any():
            return
        atom, block = crowded.nonzero()[0].tolist()
        c = self.config
        element = f" {c.type_map[block]}" if len(c.sel) > 1 else ""
        raise ValueError(
            f"atom {atom} has {int(present[atom, block])}{element} neighbours within "
            f"{c.rcut:g} Å but the model has room for {c.sel[block]} (sel), so its "
            "energy would leave some out; use a model that was trained with a larger sel"
        )
