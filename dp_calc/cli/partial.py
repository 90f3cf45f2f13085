"""Results that are written as they are made, and survive whatever stops the run.

They go to ``OUTPUT.part``, with ``OUTPUT.journal`` beside it that tells after every batch
how much of it is whole. With the last batch it becomes the output, and the journal goes.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .part_files import open_part

if TYPE_CHECKING:
    from ase import Atoms

__all__ = ["Partial", "beside", "check_unfinished", "open_partial"]


class Partial:
    """The unfinished output of a run, from :func:`open_partial`.

    Args:
        output: what it will become.
        run: what makes the run the same run.
        mark: where it ended; empty for a new one.
    """

    def __init__(self, output: Path, run: Mapping[str, Any], mark: dict[str, int]):
        self._output, (self._part, self._journal) = output, beside(output)
        if not mark:
            _remove(self._part)
            self._journal.write_text(json.dumps({"run": run}) + "\n")
        self._file = open_part(self._part, output, mark)

    @property
    def n_frames(self) -> int:
        """Structures that are written."""
        return self._file.n_frames

    @property
    def n_failed(self) -> int:
        """Those of them without results."""
        return self._file.n_failed

    def add(self, frames: Sequence["Atoms"]) -> None:
        """Write the structures of a batch."""
        mark = self._file.add(frames)
        with self._journal.open("a") as journal:
            journal.write(json.dumps(mark) + "\n")
            journal.flush()
            os.fsync(journal.fileno())

    def complete(self) -> None:
        """Make it the output."""
        self._file.close()
        os.replace(self._part, self._output)
        self._journal.unlink()

    def close(self) -> None:
        """Leave it for a later run, unless there is nothing in it."""
        self._file.close()
        if self._part.exists() and not self.n_frames:
            _remove(self._part)
            self._journal.unlink()


def check_unfinished(output: Path, resume: bool, overwrite: bool) -> None:
    """Refuse to touch results of an earlier run that nobody said what to do with.

    Raises:
        ValueError: there are some.
    """
    part, journal = beside(output)
    lines = _lines(journal)
    if _has_content(journal) and not lines and not overwrite:
        raise ValueError(
            f"{journal} is in the way: it is no journal of dp-calc, or damaged; move "
            "it away, or give --overwrite to replace it"
        )
    # With the first line alone the run had not got to its first batch.
    unfinished = _has_content(part) and len(lines) != 1
    for path, there in ((part, unfinished), (output, output.exists())):
        if there and not resume and not overwrite:
            raise ValueError(
                f"{path} exists already; give --resume to continue that run, --overwrite "
                "to replace it, or another name with -o"
            )


@contextmanager
def open_partial(output: Path, run: Mapping[str, Any], resume: bool) -> Iterator[Partial]:
    """Begin an output, or go on with one.

    Args:
        output: the file to be written in the end.
        run: what makes the run the same run: names and plain values.
        resume: whether to go on with what an earlier run has left, if anything.

    Raises:
        ValueError: it was left by a run of another kind, or another process is at it.
    """
    from .growing import held

    part, journal = beside(output)
    with held(journal):
        mark = _last_mark(part, journal, run) if resume and part.exists() else {}
        partial = Partial(output, run, mark)
        try:
            yield partial
        finally:
            partial.close()


def _last_mark(part: Path, journal: Path, run: Mapping[str, Any]) -> dict[str, int]:
    """Where the last whole batch ended; the journal is cut back to that, too."""
    lines = _lines(journal)
    if not lines:
        raise ValueError(
            f"{part} cannot be continued without {journal}; give --overwrite to start "
            "anew"
        )
    earlier = lines[0].get("run", {})
    changed = [name for name, value in run.items() if earlier.get(name) != value]
    if changed:
        raise ValueError(
            f"{part} was begun with another {' and '.join(changed)}; give what it was "
            "begun with, or --overwrite to start anew"
        )
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines[-1] if len(lines) > 1 else {}


def _lines(journal: Path) -> list[dict[str, Any]]:
    """Entries of a journal up to the first that is torn."""
    entries: list[dict[str, Any]] = []
    text = journal.read_text(errors="replace") if journal.is_file() else ""
    for line in text.splitlines(keepends=True):
        try:
            entry = json.loads(line) if line.endswith("\n") else None
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            break
        entries.append(entry)
    return entries


def beside(output: Path) -> tuple[Path, Path]:
    """Names of the unfinished output and of its journal."""
    output = output.resolve()
    return tuple(output.with_name(f"{output.name}.{end}") for end in ("part", "journal"))


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _remove(part: Path) -> None:
    for ending in ("", "-journal"):  # the latter is SQLite's
        part.with_name(part.name + ending).unlink(missing_ok=True)
