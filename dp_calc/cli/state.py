"""Taking a simulation of ASE apart into arrays, and putting it together again."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from ase import Atoms
from ase.md.md import MolecularDynamics
from ase.optimize.optimize import Optimizer

__all__ = ["atoms_state", "dynamics_state", "optimizer_state", "restore_atoms",
           "restore_dynamics", "restore_optimizer", "watch"]  # fmt: skip

_MEMORY = ("a", "Nsteps")
"""What FIRE keeps from step to step besides what ASE's own restart files hold."""


def atoms_state(atoms: Atoms) -> dict[str, np.ndarray]:
    """Positions, cell and, if there are any, momenta: the parts that move."""
    moving = {"positions": atoms.positions.copy(), "cell": np.array(atoms.cell)}
    return {**moving, "momenta": atoms.get_momenta()} if atoms.has("momenta") else moving


def restore_atoms(atoms: Atoms, arrays: Mapping[str, np.ndarray]) -> None:
    """Put atoms back, past any constraint."""
    atoms.set_cell(arrays["cell"], apply_constraint=False)
    atoms.positions[:] = arrays["positions"]
    if "momenta" in arrays:
        atoms.set_momenta(arrays["momenta"], apply_constraint=False)


def dynamics_state(dynamics: MolecularDynamics) -> dict[str, np.ndarray]:
    """Every number and array that an integrator and its thermostats hold."""
    return {
        f"dynamics.{name}": np.array(vars(owner)[key])
        for name, owner, key in _numbers(dynamics)
    }


def restore_dynamics(
    dynamics: MolecularDynamics, arrays: Mapping[str, np.ndarray]
) -> None:
    """Give an integrator that was made in the same way the numbers of another."""
    for name, owner, key in _numbers(dynamics):
        value = arrays.get(f"dynamics.{name}")
        if value is not None:
            vars(owner)[key] = value.copy() if value.ndim else value.item()
    # What an integrator has only after its first step.
    for name, value in arrays.items():
        key = name.removeprefix("dynamics.")
        if key != name and "." not in key and key not in vars(dynamics):
            vars(dynamics)[key] = value.copy() if value.ndim else value.item()


def _numbers(owner: Any, path: str = "") -> Iterator[tuple[str, Any, str]]:
    for key, value in sorted(vars(owner).items()):
        if isinstance(value, bool | int | float | np.number | np.ndarray):
            yield path + key, owner, key
        elif type(value).__module__.startswith("ase.md."):
            yield from _numbers(value, f"{path}{key}.")


def watch(optimizer: Optimizer) -> dict[str, Any]:
    """Have an optimizer hand over what it would write to a restart file of its own.

    Returns:
        A dictionary whose entry ``"dump"`` is always that of the last step.
    """
    seen: dict[str, Any] = {}
    optimizer.dump = lambda data: seen.update(dump=data)
    return seen


def optimizer_state(
    optimizer: Optimizer, seen: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """What an optimizer remembers, after at least one step; see :func:`watch`."""
    parts = dict(enumerate(seen["dump"]))
    memory = {k: vars(optimizer)[k] for k in _MEMORY if k in vars(optimizer)}
    return {f"optimizer.{k}": np.array(v) for k, v in {**parts, **memory}.items()}


def restore_optimizer(
    optimizer: Optimizer, arrays: Mapping[str, np.ndarray], step: int
) -> None:
    """Give an optimizer that was made in the same way the memory of another."""
    kept = {
        name.removeprefix("optimizer."): value.copy() if value.ndim else value.item()
        for name, value in arrays.items()
        if name.startswith("optimizer.")
    }
    dump = [kept[str(i)] for i in range(len(kept)) if str(i) in kept]
    optimizer.load = lambda: dump
    optimizer.read()
    vars(optimizer).update({k: kept[k] for k in _MEMORY if k in kept})
    optimizer.nsteps = step
