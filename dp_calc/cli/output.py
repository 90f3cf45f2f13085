"""Output files: checked before anything runs, and complete or not there at all."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["check_output", "replacing"]


def check_output(
    path: Path, kind: str, suffixes: Sequence[str], inputs: Sequence[Path]
) -> None:
    """Refuse a place where nothing can or should be written.

    Args:
        path: the file to write.
        kind: what it will be, as an error calls it.
        suffixes: endings that its name may have.
        inputs: files that it must not replace.

    Raises:
        ValueError: it cannot be written there; the message says why.
    """
    if path.suffix.lower() not in suffixes:
        raise ValueError(
            f"the output {path} is written as {kind}; give it the ending "
            f"{' or '.join(suffixes)}"
        )
    if not path.parent.is_dir():
        raise ValueError(
            f"there is no folder {path.parent} for the output; make it first"
        )
    if path.exists() and not path.is_file():
        raise ValueError(f"the output {path} is not a file; give another name")
    _try_folder(path.resolve().parent)
    for given in inputs:
        if path.exists() and given.exists() and path.samefile(given):
            raise ValueError(f"the output {path} would overwrite an input; rename it")


def _try_folder(folder: Path) -> None:
    """Write a file that is gone at once: permissions alone do not tell."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"nothing can be written to {folder}: {error.strerror}"
        ) from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside ``path`` that takes its place once it is complete."""
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
