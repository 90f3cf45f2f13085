"""Molecular dynamics, step by step, with everything that is written on the way."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from ase.md.md import MolecularDynamics

from .console import progress
from .growing import GrowingFrames, TableFile, closed_in_the_end, held, open_frames
from .integrators import Observer, make_dynamics
from .job import Job
from .state import dynamics_state, restore_dynamics
from .stepping import advance

__all__ = ["Dynamics"]


@dataclass(frozen=True)
class Dynamics(Job):
    """Molecular dynamics that is set up; ``atoms`` are where it starts or goes on.

    Attributes:
        random: source of all random numbers.
        observer: measures ``atoms``.
    """

    command = "md"
    growing = ("frames", "log")

    random: np.random.Generator
    observer: Observer

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
                self.clear()
                self._save(dynamics, {})
            else:
                self.go_on(self.stored)
                restore_dynamics(dynamics, self.stored.arrays)
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
        random = self.random.bit_generator.state
        self.save(dynamics.nsteps, marks, dynamics_state(dynamics), random)
