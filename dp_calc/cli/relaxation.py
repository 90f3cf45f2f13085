"""A relaxation, step by step, with everything that is written on the way."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ase.io
from ase import Atoms
from ase.calculators.calculator import all_properties
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io.formats import filetype
from ase.optimize import BFGS, FIRE
from ase.optimize.optimize import Optimizer
from ase.units import GPa

from .cells import cell_filter, largest_stress
from .checkpoint import safely_replacing
from .console import progress
from .growing import closed_in_the_end, held, open_frames
from .job import Job
from .part_files import extxyz
from .state import optimizer_state, restore_atoms, restore_optimizer, watch
from .stepping import advance

__all__ = ["Relaxation", "largest_force"]

_SAVE_EVERY = 10


@dataclass(frozen=True)
class Relaxation(Job):
    """A relaxation that is set up; ``atoms`` are as given."""

    command = "relax"

    def run(self) -> None:
        """Relax the atoms in place and write all but the output.

        Raises:
            Stopped: a signal came.
            FloatingPointError: a step could not be computed.
            OSError: something could not be written.
            ValueError: the files are not those of the checkpoint.
        """
        with held(self.paths["frames"]):
            optimizer = self._begin()
            seen = watch(optimizer)
            if self.stored is None:
                self.clear()
                self.save(0, {}, {})
            else:
                self.go_on(self.stored)
                if self.stored.step:
                    restore_optimizer(optimizer, self.stored.arrays, self.stored.step)
            self._steps(optimizer, seen)

    def converged(self) -> bool:
        """Whether atoms, and cell if it is free, are as near the minimum as asked."""
        if largest_force(self.atoms) > self.args.fmax:
            return False
        cell = self.settings["cell"]
        limit = self.args.smax_gpa * GPa
        return (
            cell == "fixed" or largest_stress(self.atoms, cell, self._pressure) <= limit
        )

    def check_output(self) -> None:
        """Refuse a format that cannot hold the structure, before it is relaxed.

        Raises:
            ValueError: the message says why.
        """
        name = self.paths["output"].name
        with TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # comes again with the output
            try:
                self._write(Path(folder) / name)
            except Exception as error:
                told = " ".join(str(error).split())
                reason = told if " " in told else "it needs more than a structure"
            else:
                written = [path.name for path in Path(folder).iterdir()]
                reason = "" if written == [name] else "it makes more than one file"
        if reason:
            raise ValueError(
                f"ASE's format for the name {name} does not take this structure: "
                f"{reason}; take a name like relaxed.extxyz"
            )

    def write_output(self) -> None:
        """Write the structure as it is now, with its results."""
        with safely_replacing(self.paths["output"]) as temporary:
            self._write(temporary)

    def _write(self, path: Path) -> None:
        result = self.atoms.copy()
        known = {k: v for k, v in self.atoms.calc.results.items() if k in all_properties}
        result.calc = SinglePointCalculator(result, **known)
        kind = filetype(str(self.paths["output"]), read=False)
        if kind == "extxyz":
            path.write_text(extxyz(result), encoding="utf-8")
        else:
            ase.io.write(path, result, format=kind)

    @property
    def _pressure(self) -> float:
        """In eV/Å³."""
        return self.settings["pressure_gpa"] * GPa

    def _begin(self) -> Optimizer:
        # The filter measures strain from the cell that it is made with.
        target, cell = self.atoms, self.settings["cell"]
        if cell != "fixed":
            target = cell_filter(self.atoms, cell, self._pressure)
        if self.stored:
            restore_atoms(self.atoms, self.stored.arrays)
        kind = {"bfgs": BFGS, "fire": FIRE}[self.settings["optimizer"]]
        return kind(target, logfile=None)

    def _steps(self, optimizer: Optimizer, seen: dict[str, Any]) -> None:
        frames = open_frames(self.paths["frames"])

        def save() -> None:
            marks = {"frames": frames.mark()}
            self.save(optimizer.nsteps, marks, optimizer_state(optimizer, seen))

        left = max(self.args.steps - optimizer.nsteps, 0)
        # ASE's own criterion never holds: it takes stress for a force.
        steps = progress(optimizer.irun(fmax=0.0, steps=left), left + 1, "step")
        with closed_in_the_end(frames):
            advance(
                steps,
                lambda: optimizer.nsteps,
                lambda: frames.write(self.atoms),
                save,
                _SAVE_EVERY,
                self.converged,
            )


def largest_force(atoms: Atoms) -> float:
    """In eV/Å, without what the constraints hold."""
    return float((atoms.get_forces() ** 2).sum(1).max() ** 0.5)
