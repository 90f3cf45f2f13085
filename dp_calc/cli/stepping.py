"""Running a simulation step by step so that it can be stopped and continued."""

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Stopped", "advance"]

_PATIENCE = 1.0
"""Seconds. Terminals and job systems deliver one signal twice."""


class Stopped(Exception):
    """The user or the system asked to stop; everything is saved.

    Attributes:
        signal: number of the signal.
        step: the last step that was done.
    """

    def __init__(self, number: int, step: int):
        super().__init__(number, step)
        self.signal, self.step = number, step


def advance(
    steps: Iterable[object],
    count: Callable[[], int],
    record: Callable[[], None],
    save: Callable[[], None],
    save_every: int,
    done: Callable[[], bool] = lambda: False,
) -> None:
    """Run to the end and save on the way; nothing is saved of a step that fails.

    Args:
        steps: does one step for each item; the first item is where it starts.
        count: how many steps are done.
        record: checks and writes what came out of a step.
        save: writes a checkpoint.
        save_every: steps between checkpoints.
        done: whether the aim is reached.

    Raises:
        Stopped: a signal arrived. A second one, later, interrupts at once.
        FloatingPointError: a step could not be computed; the message says which.
        OSError: something could not be written.
    """
    first = saved = count()
    with _noted_signals() as signals:
        try:
            for _ in steps:
                if count() > first or count() == 0:
                    record()
                if signals or done():
                    break
                if count() > saved and count() % save_every == 0:
                    save()
                    saved = count()
            if count() > saved:
                save()
                saved = count()
        except (ValueError, ArithmeticError) as error:
            raise FloatingPointError(
                f"stopped after step {count()}: {error}; the checkpoint of step {saved} "
                "and all files are whole"
            ) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(
                f"stopped after step {count()}: {reason}; the checkpoint of step {saved} "
                "is whole, and the same command with --resume goes on from there"
            ) from error
        if signals:
            raise Stopped(signals[0], count())


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Let a step end before SIGINT or SIGTERM counts, as half a step cannot be saved."""
    received: list[int] = []
    first = 0.0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if not received:
            received.append(number)
            first = time.monotonic()
        elif time.monotonic() - first > _PATIENCE:
            raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, note) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
