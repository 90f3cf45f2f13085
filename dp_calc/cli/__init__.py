"""The command line: ``dp-calc`` and ``python -m dp_calc``.

One module per command. Each imports what it needs when it runs, so that ``--help`` and
wrong usage answer at once.
"""

import argparse
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..installation import InstallationError
from . import bench, cache, compress, demo, evaluate, info, md, models, relax

__all__ = ["main"]

_BAD_INPUT = 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells count
_READER_GONE = 141  # 128 + SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments; those of the process if not given.

    Returns:
        Exit status: 0 if all went well, 1 if something could not be computed, 2 if the
        input was refused.
    """
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        # A terminal without Å shows a question mark instead of losing a result.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        return _run(argv)
    except BrokenPipeError:
        _discard_stdout()
        return _READER_GONE
    except KeyboardInterrupt:
        _say("interrupted")
        return _INTERRUPTED
    except (ValueError, OSError, InstallationError) as error:
        _say(f"error: {_sentence(error)}")
        return _BAD_INPUT
    except ArithmeticError as error:
        _say(f"error: {_sentence(error)}")
        return 1


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = _parser().parse_args(argv)
        with _warnings_as_sentences():
            return args.run(args)
    finally:
        # Here and not at exit, where a reader that is gone could not be told from a bug.
        sys.stdout.flush()


def _open_missing_streams() -> None:
    """Send what nobody reads nowhere, as in a job that was started without streams.

    A file opened later would else take the place of one, and get what C code prints.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dp-calc",
        description="Evaluate DPA4 and classic DeePMD potentials through ASE.",
    )
    parser.add_argument("--version", action=_ShowVersion)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in (info, models, evaluate, relax, md, compress, bench, cache, demo):
        module.add_parser(commands)
    return parser


class _ShowVersion(argparse.Action):
    """Looks the version up only when asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str):
        super().__init__(option_strings, dest, nargs=0, help="show the version and exit")

    def __call__(self, parser, namespace, values, option_string=None):
        from .. import __version__

        print(f"dp-calc {__version__}")
        parser.exit()


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'system'}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _say(text: str) -> None:
    print(f"dp-calc: {text}", file=sys.stderr)


@contextmanager
def _warnings_as_sentences() -> Iterator[None]:
    """Show warnings without the source line that raised them."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _say(f"warning: {message}")
        yield


def _discard_stdout() -> None:
    """Keep Python from flushing into the closed pipe once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
