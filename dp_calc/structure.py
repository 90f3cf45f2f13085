"""From ``Atoms`` to checked tensors. Nothing here changes the caller's object."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from ase import Atoms
from ase.data import chemical_symbols
from ase.geometry import complete_cell
from torch import Tensor

__all__ = ["Structure", "element_types", "why_no_stress"]

_FLATTEST = 1e-9
"""Volume of a cell over that of its edges' box; flatter ones are mistakes."""

_FARTHEST = 1e10
"""Å. Beyond it a float64 no longer resolves the length of a bond."""


@dataclass(frozen=True)
class Structure:
    """Geometry and types of one system on the CPU, fit to be evaluated.

    Attributes:
        numbers: atomic numbers, (N,).
        types: index into the model's ``type_map``, (N,), int64.
        positions: as given, in Å, (N, 3), float64.
        cell: lattice vectors in rows, in Å, (3, 3), float64. The rows of open axes are
            unit vectors perpendicular to all others, whatever the caller had there.
        pbc: which axes are periodic, (3,), bool.
        turns: lattice vectors from the home cell to each atom's, zero along open axes,
            (N, 3), float64 holding whole numbers.
    """

    numbers: np.ndarray
    types: Tensor
    positions: Tensor
    cell: Tensor
    pbc: Tensor
    turns: Tensor

    @classmethod
    def from_atoms(cls, atoms: Atoms, types: Mapping[str, int]) -> "Structure":
        """Check a structure and copy it.

        Args:
            atoms: any cell, any periodicity, positions inside or outside of the cell.
            types: type index of each known element.

        Raises:
            TypeError: it is no ``Atoms``.
            ValueError: no atoms, an unknown element, a position or cell that is not
                finite, or periodic axes that do not span a lattice.
        """
        if not isinstance(atoms, Atoms):
            raise TypeError(f"a structure must be ase.Atoms, not {atoms!r:.60}")
        if len(atoms) == 0:
            raise ValueError("the structure has no atoms")
        numbers = atoms.numbers.copy()
        positions = np.array(atoms.positions, dtype=np.float64)
        cell = np.array(atoms.cell, dtype=np.float64)
        pbc = np.array(atoms.pbc, dtype=bool)
        type_of_atom = _look_up_types(numbers, types)
        _refuse_bad_positions(positions, numbers)
        _refuse_bad_cell(cell, pbc)
        cell = _close_open_axes(cell, pbc)
        turns = np.floor(positions @ np.linalg.inv(cell)) * pbc
        arrays = (type_of_atom, positions, cell, pbc, turns)
        return cls(numbers, *map(torch.from_numpy, arrays))

    @property
    def folded(self) -> Tensor:
        """Positions moved into the cell along its periodic axes, in Å, (N, 3)."""
        # No matrix product: how it rounds a row may depend on the other rows.
        x, y, z = self.turns.split(1, dim=1)
        return self.positions - (x * self.cell[0] + y * self.cell[1] + z * self.cell[2])

    def name(self, atom: int) -> str:
        """Index and element of an atom, as error messages show it."""
        return f"{atom} ({_symbol(self.numbers[atom])})"


def element_types(
    type_map: tuple[str, ...], type_dict: Mapping[str, int] | None
) -> dict[str, int]:
    """Type index of each element.

    Args:
        type_map: the model's elements in the order of their types.
        type_dict: overrides it if given: element symbol to type index.

    Raises:
        ValueError: ``type_dict`` is no such mapping.
    """
    if type_dict is None:
        return {symbol: index for index, symbol in enumerate(type_map)}
    last = len(type_map) - 1
    if not isinstance(type_dict, Mapping) or not type_dict:
        raise ValueError(
            f"type_dict must map element symbols to types, not {type_dict!r}"
        )
    for symbol, index in type_dict.items():
        if symbol not in chemical_symbols[1:]:
            raise ValueError(
                f"type_dict names {symbol!r}, which is not an element symbol"
            )
        whole = isinstance(index, int | np.integer) and not isinstance(index, bool)
        if not whole or not 0 <= index <= last:
            raise ValueError(
                f"type_dict gives {symbol} the type {index!r}; this model has the types "
                f"0 to {last} ({', '.join(type_map)})"
            )
    return {symbol: int(index) for symbol, index in type_dict.items()}


def why_no_stress(atoms: Atoms) -> str | None:
    """Reason why a structure has no stress, or None where it has one."""
    if not atoms.pbc.any():
        return "stress needs a periodic structure, but no axis of this one is periodic"
    if _flatness(np.array(atoms.cell)) < _FLATTEST:
        return (
            "stress is a force per area and needs a cell with a volume, but the three "
            "vectors of this cell span none; give open axes a vector too"
        )
    return None


def _flatness(cell: np.ndarray) -> float:
    """Volume of a cell over that of a box with the same edges."""
    box = np.linalg.norm(cell, axis=1).prod()
    return abs(np.linalg.det(cell)) / box if box > 0 else 0.0


def _look_up_types(numbers: np.ndarray, types: Mapping[str, int]) -> np.ndarray:
    unique, inverse = np.unique(numbers, return_inverse=True)
    symbols = [_symbol(number) for number in unique]
    unknown = [symbol for symbol in symbols if symbol not in types]
    if unknown:
        raise ValueError(
            f"the structure contains {', '.join(unknown)}, which this model does not "
            f"know; it knows {', '.join(types)}"
        )
    return np.array([types[s] for s in symbols], dtype=np.int64)[inverse.reshape(-1)]


def _symbol(number: int) -> str:
    if 0 <= number < len(chemical_symbols):
        return chemical_symbols[number]
    return f"an element with the atomic number {number}"


def _refuse_bad_positions(positions: np.ndarray, numbers: np.ndarray) -> None:
    good = (np.abs(positions) < _FARTHEST).all(axis=1)
    if not good.all():
        atom = int(np.argmin(good))
        raise ValueError(
            f"atom {atom} ({_symbol(numbers[atom])}) has the position "
            f"{positions[atom].tolist()}; coordinates must be finite numbers below "
            f"{_FARTHEST:g} Å"
        )


def _refuse_bad_cell(cell: np.ndarray, pbc: np.ndarray) -> None:
    if not (np.abs(cell) < _FARTHEST).all():
        raise ValueError(
            f"the cell {cell.tolist()} must hold finite numbers below {_FARTHEST:g} Å"
        )
    missing = np.flatnonzero(pbc & ~cell.any(axis=1))
    if missing.size:
        raise ValueError(
            f"axis {missing[0]} is periodic but its cell vector is zero; set the cell, "
            "or switch off pbc for this axis"
        )
    if pbc.any() and np.linalg.matrix_rank(cell[pbc]) < pbc.sum():
        raise ValueError(
            f"the periodic cell vectors {cell[pbc].tolist()} are linearly dependent and "
            "span no lattice; correct the cell"
        )


def _close_open_axes(cell: np.ndarray, pbc: np.ndarray) -> np.ndarray:
    lattice = np.where(pbc[:, None], cell, 0.0)
    # The periodic rows are taken from the input again, since completing a lone vector
    # passes it through a decomposition that rounds it.
    return np.where(pbc[:, None], cell, complete_cell(lattice))
