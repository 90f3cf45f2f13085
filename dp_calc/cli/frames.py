"""Structures in files: counted before anything runs, then read one after the other."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ase import Atoms

__all__ = ["FrameFiles", "why_unreadable"]


class FrameFiles:
    """All structures of some files, in their order.

    Every file is read once to count its structures, so that one that cannot be read is
    refused at once; structures are never all in memory.

    Args:
        paths: files of any format that ASE reads.

    Attributes:
        paths: as given.
        counts: number of structures in each.

    Raises:
        ValueError: a file cannot be read, or holds no structures.
    """

    def __init__(self, paths: Sequence[Path]):
        self.paths = list(paths)
        for path in self.paths:
            if not path.is_file():
                raise ValueError(f"there is no structure file {path}")
        self.counts = [_count(path) for path in self.paths]

    def __len__(self) -> int:
        return sum(self.counts)

    def read(self, start: int) -> Iterator["Atoms"]:
        """Structures from number ``start`` on.

        Raises:
            ValueError: a file has changed since it was counted.
        """
        for path, count in zip(self.paths, self.counts, strict=True):
            if start < count:
                found = 0
                for frame in islice(_frames(path), start, count):
                    found += 1
                    yield frame
                if found != count - start:
                    raise ValueError(f"{path} has become shorter while it was read")
            start = max(0, start - count)

    def label(self, number: int) -> str:
        """Number of a structure in its file, with the file where there are several."""
        if len(self.paths) == 1:
            return str(number)
        for path, count in zip(self.paths, self.counts, strict=True):
            if number < count:
                return f"{path.name}@{number}"
            number -= count
        raise IndexError(number)

    def digest(self) -> str:
        """SHA-256 of the contents of all files."""
        digest = hashlib.sha256()
        for path in self.paths:
            digest.update(_digest(path))
        return digest.hexdigest()


def _count(path: Path) -> int:
    count = sum(1 for _ in _frames(path))
    if not count:
        raise ValueError(f"{path} holds no structures")
    return count


def _frames(path: Path) -> Iterator["Atoms"]:
    import ase.io

    try:
        yield from ase.io.iread(path, index=":", do_not_split_by_at_sign=True)
    except Exception as error:
        reason = why_unreadable(error)
        raise ValueError(f"ASE cannot read structures from {path}: {reason}") from error


def why_unreadable(error: Exception) -> str:
    """A reason from an error of ASE's formats, each of which fails in its own way."""
    from ase.io.formats import UnknownFileTypeError

    text = " ".join(str(error).split())
    told = isinstance(error, ValueError | OSError | UnknownFileTypeError)
    # Of an unknown ending ASE says nothing but the ending.
    return text if told and " " in text else "it fits no known format"


def _digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.digest()
