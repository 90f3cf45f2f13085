"""Runs ``dp-calc`` in child processes and interrupts it; a script of test_interruption.

Arguments: how often to interrupt, a seed, the number of steps, and those of ``dp-calc``.
The children are forked from a process that has PyTorch imported, which takes most of the
time of a start. Prints one line of JSON for each interruption.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import ase.io
import torch  # noqa: F401 (what the children need)

import dp_calc.cli.dynamics
import dp_calc.cli.report  # noqa: F401 (what the children need)
from dp_calc.cli import main


def _start(args):
    child = os.fork()
    if child == 0:
        os._exit(main(args))
    return child


def _rows(log):
    return log.read_bytes().count(b"\n") - 1 if log.exists() else -1


def _ended(child):
    pid, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None


def _interrupt(args, log, row, delay, number):
    """Send a signal shortly after a row was written; the exit status."""
    child = _start(args)
    limit = time.monotonic() + 60
    while _rows(log) < row and time.monotonic() < limit:
        status = _ended(child)
        if status is not None:
            return status
        time.sleep(0.001)
    time.sleep(delay)
    os.kill(child, number)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(times, seed, steps, args):
    output = Path(args[args.index("-o") + 1])
    chance = random.Random(seed)
    rows = sorted(chance.sample(range(-1, steps - 1), times))
    for i, row in enumerate(rows):
        number = (signal.SIGKILL, signal.SIGINT)[i % 2]
        delay = chance.uniform(0, 0.05)
        log = output.with_suffix(".csv")
        # Beyond what the run before has left: that is cut back after a while.
        row = max(row, _rows(log) + 1)
        status = _interrupt(args, log, row, delay, number)
        frames = 0
        if output.exists() and output.stat().st_size:
            frames = len(ase.io.read(output, ":"))
        told = {"signal": int(number), "status": status, "row": row, "frames": frames}
        print(json.dumps(told), flush=True)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(_start(args), 0)[1]))


if __name__ == "__main__":
    run(*map(int, sys.argv[1:4]), sys.argv[4:])
