"""Unfinished files of results, to which whole batches of structures are added."""

import io
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .evaluated import FURTHER_ARRAYS, FURTHER_INFO, without_unwritable

if TYPE_CHECKING:
    from ase import Atoms

__all__ = ["DATABASE", "EXTXYZ", "PartFile", "extxyz", "open_part"]

EXTXYZ, DATABASE = (".extxyz", ".xyz"), (".db",)
"""Endings of an output, by its format."""

_IN_ROWS = ("numbers", "positions", "tags", "momenta", "masses", "initial_charges",
            "initial_magmoms")  # fmt: skip
"""Arrays of atoms that a row of an ASE database has columns for."""


class PartFile(Protocol):
    """An unfinished file.

    Attributes:
        n_frames: structures in it.
        n_failed: those of them without results.
    """

    n_frames: int
    n_failed: int

    def add(self, frames: Sequence["Atoms"]) -> dict[str, int]:
        """Add structures, all or none; on the disk when this returns.

        Returns:
            What is needed to open the file again as it is now.
        """

    def close(self) -> None:
        """Close it."""


def open_part(path: Path, output: Path, mark: dict[str, int]) -> PartFile:
    """Open a file, or make it.

    Args:
        path: the file.
        output: what it will become, whose ending tells the format.
        mark: what ``add`` gave last; whatever was written after that may be torn. Empty:
            for a new file.

    Raises:
        ValueError: the file does not hold what was marked.
    """
    kind = _Database if output.suffix.lower() in DATABASE else _Extxyz
    return kind(path, mark)


class _Extxyz:
    def __init__(self, path: Path, mark: dict[str, int]):
        self.n_frames, self.n_failed = mark.get("frames", 0), mark.get("failed", 0)
        self._path, size = path, mark.get("size", 0)
        self._file = path.open("ab", buffering=0)
        if self._file.tell() < size:
            self._file.close()
            raise _damaged(path)
        self._file.truncate(size)

    def add(self, frames: Sequence["Atoms"]) -> dict[str, int]:
        content = memoryview("".join(map(extxyz, frames)).encode())
        try:
            while content:
                content = content[self._file.write(content) :]
            os.fsync(self._file.fileno())
        except OSError as error:  # which does not say where
            raise OSError(error.errno, error.strerror, str(self._path)) from None
        self.n_frames += len(frames)
        self.n_failed += sum("error" in frame.info for frame in frames)
        size = os.fstat(self._file.fileno()).st_size
        return {"frames": self.n_frames, "failed": self.n_failed, "size": size}

    def close(self) -> None:
        self._file.close()


def extxyz(frame: "Atoms") -> str:
    """A structure as extended XYZ; what that cannot hold is left out, with a warning."""
    return _extxyz_text(without_unwritable(frame, _fits_extxyz, "extended XYZ"))


def _fits_extxyz(frame: "Atoms") -> bool:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # ASE warns where it leaves something out
        try:
            text = _extxyz_text(frame)
        except Exception:
            return False
    return text.count("\n") == len(frame) + 2


def _extxyz_text(frame: "Atoms") -> str:
    import ase.io

    text = io.StringIO()
    ase.io.write(text, frame, format="extxyz")
    return text.getvalue()


class _Database:
    """Every batch is one transaction, which SQLite completes or takes back."""

    def __init__(self, path: Path, mark: dict[str, int]):
        import ase.db

        self._path = path
        # Its lock would outlive a process that was killed.
        self._rows = ase.db.connect(str(path), type="db", use_lock_file=False)
        try:
            self.n_frames = self._rows.count()
            self.n_failed = self._rows.count("error")
        except sqlite3.Error as error:
            raise ValueError(f"{path}: {error}") from error
        if self.n_frames < mark.get("frames", 0):
            raise _damaged(path)

    def add(self, frames: Sequence["Atoms"]) -> dict[str, int]:
        try:
            with self._rows:
                for frame in frames:
                    self._write(frame)
        except sqlite3.Error as error:
            raise OSError(f"{self._path}: {error}") from error
        self.n_frames += len(frames)
        self.n_failed += sum("error" in frame.info for frame in frames)
        return {"frames": self.n_frames, "failed": self.n_failed}

    def _write(self, frame: "Atoms") -> None:
        frame = without_unwritable(frame, _fits_json, "a database")
        error = {"error": frame.info["error"]} if "error" in frame.info else {}
        self._rows.write(frame, key_value_pairs=error, data=_data(frame))

    def close(self) -> None:
        """Nothing stays open between transactions."""


def _data(frame: "Atoms") -> dict[str, Any]:
    """What a row has no column for."""
    info = {k: v for k, v in frame.info.items() if k not in ("error", *FURTHER_INFO)}
    arrays = {
        name: values
        for name, values in frame.arrays.items()
        if name not in (*_IN_ROWS, *FURTHER_ARRAYS)
    }
    results = {n: frame.info[n] for n in FURTHER_INFO if n in frame.info}
    results |= {n: frame.arrays[n] for n in FURTHER_ARRAYS if n in frame.arrays}
    return {**results, "info": info, "arrays": arrays}


def _fits_json(frame: "Atoms") -> bool:
    from ase.db.row import AtomsRow
    from ase.io.jsonio import encode

    try:
        encode(_data(frame))
        AtomsRow(frame)
    except Exception:
        return False
    return True


def _damaged(path: Path) -> ValueError:
    return ValueError(
        f"{path} is shorter than its journal says; give --overwrite to start anew"
    )
