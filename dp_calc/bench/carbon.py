"""Diamond, the structure that is timed."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ase import Atoms

__all__ = ["diamond", "frames_of", "repeats_of"]

_LATTICE = 3.567  # Å
_SPREAD = 0.02  # Å


def repeats_of(n_atoms: int) -> tuple[int, int, int]:
    """Repeats of the cell of 8 atoms along each axis, as equal as possible, ascending.

    Raises:
        ValueError: no block of cells has this number of atoms.
    """
    cells, rest = divmod(n_atoms, 8)
    if rest or cells < 1:
        raise ValueError(
            f"diamond has cells of 8 atoms, so that {n_atoms} atoms are no block of "
            "them; give a multiple of 8, such as 96, 1000 or 4096"
        )
    triples = (
        (a, b, cells // (a * b))
        for a in range(1, round(cells ** (1 / 3)) + 1)
        if cells % a == 0
        for b in range(a, int((cells // a) ** 0.5) + 1)
        if cells // a % b == 0
    )
    return min(triples, key=lambda repeats: repeats[2] - repeats[0])


def diamond(n_atoms: int) -> "Atoms":
    """Diamond of so many carbon atoms."""
    from ase.build import bulk

    return bulk("C", "diamond", a=_LATTICE, cubic=True).repeat(repeats_of(n_atoms))


def frames_of(atoms: "Atoms") -> list[np.ndarray]:
    """Positions of three frames, each atom off its place at random, (N, 3) in Å."""
    rng = np.random.default_rng(0)
    shape = atoms.positions.shape
    return [atoms.positions + _SPREAD * rng.standard_normal(shape) for _ in range(3)]
