"""Checkpoints: all that a simulation needs to go on as if it had never stopped."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

__all__ = ["Checkpoint", "differences", "safely_replacing"]

_FORMAT = 1

_BY_CONTENT = ("structure", "model")
"""Settings that hold a checksum, which tells a reader nothing."""


@dataclass(frozen=True)
class Checkpoint:
    """A simulation between two steps.

    Attributes:
        command: ``"md"`` or ``"relax"``.
        step: number of steps done.
        settings: what must be the same to go on.
        circumstances: what may differ, at the price of the last digits.
        random: state of the random numbers, as NumPy gives it; None without any.
        marks: where each growing file ended, by its role.
        arrays: positions (Å), cell, momenta and numbers of the integrator, by name.
    """

    command: str
    step: int
    settings: Mapping[str, Any]
    circumstances: Mapping[str, Any]
    random: Mapping[str, Any] | None
    marks: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    def write(self, path: Path) -> None:
        """Put it in place of an older one; at every moment one of the two is whole."""
        fields = {k: v for k, v in vars(self).items() if k != "arrays"}
        text = json.dumps({"format": _FORMAT, **fields})
        with safely_replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **{"fields": np.array(text), **self.arrays})

    @classmethod
    def read(cls, path: Path, command: str) -> "Checkpoint":
        """Read one as plain data; nothing in the file is executed.

        Raises:
            ValueError: it is no checkpoint of this command, or damaged.
        """
        with path.open("rb") as content:
            try:
                checkpoint, version = cls._parse(content)
            except Exception as error:  # damage shows in many ways
                raise ValueError(
                    f"{path} is no checkpoint of dp-calc, or it is damaged; remove it "
                    "and start anew"
                ) from error
        if version != _FORMAT or checkpoint.command != command:
            raise ValueError(
                f"{path} belongs to dp-calc {checkpoint.command} (format {version}), "
                f"which dp-calc {command} of this version cannot continue"
            )
        return checkpoint

    @classmethod
    def _parse(cls, content: BinaryIO) -> tuple["Checkpoint", int]:
        with np.load(content, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        fields = json.loads(str(arrays.pop("fields")))
        version = fields.pop("format")
        return cls(arrays=arrays, **fields), version


def differences(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is not as it was, one phrase each: ``"timestep_fs is 1.0 (was 0.5)"``."""
    return [
        f"the {name} is another one"
        if name in _BY_CONTENT
        else f"{name} is {value} (was {stored.get(name)})"
        for name, value in now.items()
        if stored.get(name) != value
    ]


@contextmanager
def safely_replacing(path: Path) -> Iterator[Path]:
    """A file beside ``path`` that takes its place whole, even if the power fails."""
    path = path.resolve()
    # With the ending of the whole: some writers look at it.
    temporary = path.with_name(f".{path.stem}.part{path.suffix}")
    temporary.unlink(missing_ok=True)  # some would add to what a killed run has left
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
