"""Molecular dynamics, step by step, with everything that is written on the way."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.md.md import MolecularDynamics

from .checkpoint import Checkpoint
from .console import progress
from .growing import (
    GrowingFrames,
    TableFile,
    closed_in_the_end,
    cut_back,
    held,
    open_frames,
)
from .integrators import Observer, make_dynamics
from .resume import say_differences
from .state import atoms_state, dynamics_state, restore_dynamics
from .stepping import advance

__all__ = ["Dynamics"]


@dataclass(frozen=True)
class Dynamics:
    """A run that is set up.

    Attributes:
        args: the options of the command.
        settings: what must stay as it is when the run goes on.
        circumstances: what should.
        paths: files to write, by role: frames, log, picture, checkpoint.
        atoms: where it starts or goes on, with its calculator.
        random: source of all random numbers.
        observer: measures ``atoms``.
        stored: the checkpoint to go on from, if any.
    """

    args: argparse.Namespace
    settings: dict[str, Any]
    circumstances: dict[str, Any]
    paths: dict[str, Path]
    atoms: Atoms
    random: np.random.Generator
    observer: Observer
    stored: Checkpoint | None

    def run(self) -> None:
        """Run to the last step and write trajectory, log and checkpoints.

        Raises:
            Stopped: a signal came.
            FloatingPointError: a step could not be computed.
            OSError: something could not be written.
            ValueError: the files are not those of the checkpoint.
        """
        dynamics = make_dynamics(self.atoms, self.settings, self.random)
        with held(self.paths["frames"]):
            if self.stored is None:
                self._clear(dynamics)
            else:
                say_differences(self.stored, self.circumstances)
                restore_dynamics(dynamics, self.stored.arrays)
                for role in ("frames", "log"):
                    cut_back(self.paths[role], self.stored.marks.get(role))
            frames = open_frames(self.paths["frames"])
            log = TableFile(self.paths["log"], self.observer.columns)
            with closed_in_the_end(frames, log):
                self._steps(dynamics, frames, log)

    def refuse_runaway(self) -> None:
        """Refuse a system that is too hot to be right.

        Raises:
            ValueError: it is hotter than asked for, or its temperature is no number.
        """
        temperature = self.observer.temperature()
        if not temperature <= self.args.stop_above_k:
            raise ValueError(
                f"the system has {temperature:.4g} K, more than --stop-above-k "
                f"{self.args.stop_above_k:g}; try a shorter time step, other velocities, "
                "or a start that is relaxed"
            )

    def _clear(self, dynamics: MolecularDynamics) -> None:
        # The checkpoint goes first: it must never stand beside files of another run.
        for role in ("checkpoint", "log", "picture"):
            self.paths[role].unlink(missing_ok=True)
        cut_back(self.paths["frames"], None)
        self._save(dynamics, {})

    def _steps(
        self, dynamics: MolecularDynamics, frames: GrowingFrames, log: TableFile
    ) -> None:
        every, timestep = self.settings["every"], self.settings["timestep_fs"]

        def record() -> None:
            self.refuse_runaway()
            if dynamics.nsteps % every == 0:
                time = dynamics.nsteps * timestep
                log.write(self.observer.measure(dynamics.nsteps, time))
                frames.write(self.atoms)

        def save() -> None:
            self._save(dynamics, {"frames": frames.mark(), "log": log.mark()})

        left = self.args.steps - dynamics.nsteps
        steps = progress(dynamics.irun(left), left + 1, "step")
        advance(steps, lambda: dynamics.nsteps, record, save, self.args.save_every)

    def _save(self, dynamics: MolecularDynamics, marks: dict[str, Any]) -> None:
        arrays = {**atoms_state(self.atoms), **dynamics_state(dynamics)}
        Checkpoint(
            "md",
            dynamics.nsteps,
            self.settings,
            self.circumstances,
            self.random.bit_generator.state,
            marks,
            arrays,
        ).write(self.paths["checkpoint"])
