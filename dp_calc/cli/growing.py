"""Files that grow with a simulation and can be cut back to a checkpoint."""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import ase.io
import numpy as np
from ase import Atoms
from ase.calculators.calculator import all_properties
from ase.calculators.singlepoint import SinglePointCalculator

from .part_files import extxyz

__all__ = [
    "GrowingFrames",
    "TableFile",
    "closed_in_the_end",
    "cut_back",
    "held",
    "open_frames",
    "refuse_other",
]

_COUNTERS = slice(32, 48)
"""Bytes of an ASE trajectory that change: number of frames, place of their index."""

_TAIL = 4096


class GrowingFrames(Protocol):
    """A trajectory that is only ever added to."""

    def write(self, atoms: Atoms) -> None:
        """Add one frame, with the results of its calculator."""

    def mark(self) -> dict[str, Any]:
        """Put everything on the disk and describe where the file ends."""

    def close(self) -> None:
        """Close it."""


class _TextFile:
    def __init__(self, path: Path):
        self._file = path.open("ab")

    def add(self, text: str) -> None:
        self._file.write(text.encode())
        self._file.flush()

    def mark(self) -> dict[str, Any]:
        os.fsync(self._file.fileno())
        size = os.fstat(self._file.fileno()).st_size
        where = {"size": size, "record": [max(size - _TAIL, 0), size]}
        return {**where, "crc": _crc(Path(self._file.name), where["record"])}

    def close(self) -> None:
        self._file.close()


class TableFile(_TextFile):
    """Comma-separated values with a header; numbers keep every digit."""

    def __init__(self, path: Path, columns: list[str]):
        super().__init__(path)
        if self._file.tell() == 0:
            self.add(",".join(columns) + "\n")

    def write(self, row: list[float]) -> None:
        self.add(",".join(repr(value) for value in row) + "\n")


class _ExtxyzFile(_TextFile):
    def write(self, atoms: Atoms) -> None:
        frame = atoms.copy()
        known = {k: v for k, v in atoms.calc.results.items() if k in all_properties}
        frame.calc = SinglePointCalculator(frame, **known)
        self.add(extxyz(frame))


class _TrajectoryFile:
    def __init__(self, path: Path):
        self._path = path
        self._writer = ase.io.Trajectory(path, "a")

    def write(self, atoms: Atoms) -> None:
        self._writer.write(atoms)

    def mark(self) -> dict[str, Any]:
        file = self._writer.backend
        os.fsync(file.fd.fileno())
        with self._path.open("rb") as reader:
            head = reader.read(_COUNTERS.stop)
            record = int(file.offsets[file.nitems - 1])
            reader.seek(record)
            length = int(np.frombuffer(reader.read(8), np.int64)[0])
        where = {"size": self._path.stat().st_size, "record": [record, record + length]}
        counters = head[_COUNTERS].hex()
        return {**where, "crc": _crc(self._path, where["record"]), "counters": counters}

    def close(self) -> None:
        self._writer.close()


def open_frames(path: Path) -> GrowingFrames:
    """Open a trajectory to add frames; its ending tells the format."""
    return _TrajectoryFile(path) if path.suffix == ".traj" else _ExtxyzFile(path)


@contextmanager
def closed_in_the_end(*files: GrowingFrames | TableFile) -> Iterator[None]:
    """Close files; after an error, whatever closing adds to it is of no interest."""
    try:
        yield
    except BaseException:
        for file in files:
            with suppress(OSError):
                file.close()
        raise
    for file in files:
        file.close()


def cut_back(path: Path, mark: dict[str, Any] | None) -> None:
    """Remove what was written after a checkpoint.

    Args:
        path: the file.
        mark: what ``mark`` gave at the checkpoint; None if nothing was written then.

    Raises:
        ValueError: the file is not the one that was marked.
    """
    if mark is None:
        if path.exists():
            os.truncate(path, 0)
        return
    refuse_other(path, mark)
    if "counters" in mark:
        with path.open("r+b") as file:
            file.seek(_COUNTERS.start)
            file.write(bytes.fromhex(mark["counters"]))
    os.truncate(path, mark["size"])


def refuse_other(path: Path, mark: dict[str, Any]) -> None:
    """Refuse a file that is not the one that was marked.

    Raises:
        ValueError: it is another one, or shorter.
    """
    same = (
        path.is_file()
        and path.stat().st_size >= mark["size"]
        and _crc(path, mark["record"]) == mark["crc"]
    )
    if not same:
        raise ValueError(
            f"{path} is not the file that the checkpoint belongs to; put that one back, "
            "or start anew with --overwrite"
        )


def _crc(path: Path, region: list[int]) -> int:
    start, stop = region
    with path.open("rb") as file:
        file.seek(start)
        return zlib.crc32(file.read(stop - start))


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep a second process from writing the same file.

    Raises:
        ValueError: another process has it.
    """
    with path.open("ab") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another dp-calc is writing {path}; wait for it, or give another output"
            ) from None
        except (ImportError, OSError):
            pass  # no locks on this system or file system; the run itself needs none
        yield
