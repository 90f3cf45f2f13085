"""What relaxations and dynamics have in common: their files, and where they go on."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ase import Atoms

from .checkpoint import Checkpoint
from .growing import cut_back
from .resume import say_differences
from .state import atoms_state

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """A simulation that is set up.

    Attributes:
        command: ``"md"`` or ``"relax"``.
        growing: roles of the files that grow with the steps.
        args: the options of the command.
        settings: what must stay as it is when the run goes on.
        circumstances: what should.
        paths: files to write, by role; ``"frames"`` and ``"checkpoint"`` among them.
        atoms: the structure, with its calculator.
        stored: the checkpoint to go on from, if any.
    """

    command: ClassVar[str]
    growing: ClassVar[tuple[str, ...]] = ("frames",)

    args: argparse.Namespace
    settings: dict[str, Any]
    circumstances: dict[str, Any]
    paths: dict[str, Path]
    atoms: Atoms
    stored: Checkpoint | None

    def clear(self) -> None:
        """Remove what an earlier run has left."""
        # The checkpoint goes first: it must never stand beside files of another run.
        self.paths["checkpoint"].unlink(missing_ok=True)
        for role in self.paths.keys() - {"frames"}:
            self.paths[role].unlink(missing_ok=True)
        cut_back(self.paths["frames"], None)

    def go_on(self, stored: Checkpoint) -> None:
        """Take the files to where a checkpoint left them."""
        say_differences(stored, self.circumstances)
        for role in self.growing:
            cut_back(self.paths[role], stored.marks.get(role))

    def save(
        self,
        step: int,
        marks: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        random: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a checkpoint; ``arrays`` beside those of the atoms."""
        Checkpoint(
            self.command,
            step,
            self.settings,
            self.circumstances,
            random,
            marks,
            {**atoms_state(self.atoms), **arrays},
        ).write(self.paths["checkpoint"])
