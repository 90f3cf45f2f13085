"""One sitting of a benchmark: processes started, asked in turn, and turned into rows."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .arms import Arm

__all__ = ["COLUMNS", "Counts", "Row", "label_of", "measure"]

COLUMNS = (
    "model",
    "atoms",
    "edges",
    "arm",
    "median_ms",
    "p95_ms",
    "steady_alloc_gb",
    "reserved_gb",
    "full_alloc_gb",
    "first_call_s",
    "success",
)

Row = dict[str, Any]


@dataclass(frozen=True)
class Counts:
    """How often things are done.

    Attributes:
        warmups: evaluations before the timed ones, beside the first and one per frame.
        repeats: timed evaluations of each arm.
        blocks: rounds over the arms in which these are done.

    Raises:
        ValueError: a number is too small.
    """

    warmups: int = 12
    repeats: int = 60
    blocks: int = 6

    def __post_init__(self):
        if self.warmups < 0:
            raise ValueError(f"there cannot be {self.warmups} warm-ups; give 0 or more")
        if not 1 <= self.blocks <= self.repeats:
            raise ValueError(
                f"{self.repeats} repeats cannot be done in {self.blocks} blocks; give at "
                "least one block, and at least one repeat for each"
            )

    @property
    def per_block(self) -> list[int]:
        """Repeats in each block; the first ones get what does not divide."""
        each, rest = divmod(self.repeats, self.blocks)
        return [each + (block < rest) for block in range(self.blocks)]


def label_of(model: str) -> str:
    """Name of a model in the table: that of its file, without endings."""
    return Path(model).name.split(".")[0]


def measure(
    model: str, atoms: int, arms: Sequence[Arm], counts: Counts, options: dict[str, Any]
) -> Iterator[tuple[list[Row], dict[str, str] | None]]:
    """Measure all arms for one model and size.

    Args:
        model: file or name of a released model.
        atoms: size of the structure.
        arms: what to compare.
        counts: how often.
        options: ``head``, ``device`` and ``dtype`` of ``DP``.

    Yields:
        Nothing of use after each start and each block of an arm, so that progress can be
        shown; at last the rows, and the environment as told by an arm that ran.
    """
    job = {"model": model, "atoms": atoms, "warmups": counts.warmups, **options}
    with ExitStack() as stack:
        workers = []
        for arm in arms:
            worker = _Worker(arm, job)
            stack.callback(worker.stop)
            worker.take_start()
            workers.append(worker)
            yield [], None
        for count in counts.per_block:
            for worker in workers:
                worker.take_block(count)
                yield [], None
        for worker in workers:
            worker.take_peaks()
        known = [w.found["environment"] for w in workers if "environment" in w.found]
        yield [worker.row() for worker in workers], known[0] if known else None


@dataclass
class _Worker:
    """The process of one arm, and what it has answered."""

    arm: Arm
    job: dict[str, Any]
    found: dict[str, Any] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    failure: str | None = None

    def __post_init__(self):
        job = {**self.job, "settings": self.arm.settings, "started": time.time()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dp_calc.bench.worker", json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def take_start(self) -> None:
        self._take()

    def take_block(self, count: int) -> None:
        self.times += self._take(count).get("times", [])

    def take_peaks(self) -> None:
        self._take(0)

    def _take(self, request: int | None = None) -> dict[str, Any]:
        """The next answer; nothing from a process that has failed."""
        if self.failure is not None:
            return {}
        try:
            if request is not None:
                print(request, file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self._process.wait()
            answer = {"error": f"the process ended with the status {status}"}
        else:
            answer = json.loads(line)
        if "error" in answer:
            # A table may be published: it names files, but not where they are.
            path, name = self.job["model"], Path(self.job["model"]).name
            self.failure = answer["error"].replace(path, name)
        self.found |= answer
        return answer

    def row(self) -> Row:
        """The row of the table; that of a failure says why."""
        start = {
            "model": label_of(self.job["model"]),
            "atoms": self.job["atoms"],
            "edges": self.found.get("edges", ""),
            "arm": self.arm.name,
        }
        if self.failure is not None:
            return {name: start.get(name, "") for name in COLUMNS} | {
                "success": f"False: {self.failure}"
            }
        median, late = np.percentile(self.times, [50, 95]) * 1e3
        times = {"median_ms": round(median, 3), "p95_ms": round(late, 3)}
        memory = ("steady_alloc_gb", "reserved_gb", "full_alloc_gb")
        return (
            start
            | times
            | {name: _rounded(self.found[name], 4) for name in memory}
            | {"first_call_s": _rounded(self.found["first_call_s"], 2), "success": True}
        )

    def stop(self) -> None:
        """End the process and wait for that."""
        with suppress(BrokenPipeError):  # of a request that nobody read
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def _rounded(value: float | str, digits: int) -> float | str:
    return value if isinstance(value, str) else round(value, digits)
