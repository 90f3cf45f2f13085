"""Process of one arm: ``python -m dp_calc.bench.worker JOB``.

A job is a JSON object: ``model``, ``head``, ``device``, ``dtype``, ``settings``,
``atoms``, ``warmups`` and ``started``, the clock when the process was started. The
process writes one JSON object a line to its standard output: one when it is warm, and one
for each line of its standard input, which holds a number of evaluations to time, or 0 for
the peaks of memory since it was warm. After an error it writes the reason and ends.
"""

import json
import os
import sys
import time
from typing import Any

__all__ = ["main"]


class _Bench:
    """A calculator, three frames and what is measured of them."""

    def __init__(self, job: dict[str, Any]):
        from dp_calc import DP

        from .carbon import diamond, frames_of
        from .memory import memory_of

        self.atoms = diamond(job["atoms"])
        self.frames = frames_of(self.atoms)
        names = ("head", "device", "dtype")
        options = {name: job[name] for name in names} | job["settings"]
        self.calc = DP(job["model"], **options)
        self.memory = memory_of(self.calc.device)
        self.done = 0

    def evaluate(self) -> None:
        """One evaluation of the next frame, as a user of ASE does it."""
        self.calc.reset()
        atoms = self.atoms.copy()
        atoms.positions = self.frames[self.done % len(self.frames)]
        atoms.calc = self.calc
        atoms.get_forces().copy()
        atoms.get_potential_energy()
        self.calc.results["virial"].copy()
        atoms.get_stress().copy()
        self.done += 1

    def warm_up(self, job: dict[str, Any]) -> dict[str, Any]:
        with self.memory.watching():
            self.evaluate()
            self.synchronize()
            first = time.time() - job["started"]
            for _ in range(len(self.frames) + job["warmups"]):
                self.evaluate()
            self.synchronize()
        answer = {
            "first_call_s": first,
            "full_alloc_gb": self.memory.allocated(),
            "edges": self.count_edges(),
            "environment": _environment(self.calc.device),
        }
        self.memory.restart()
        return answer

    def sample(self, count: int) -> dict[str, Any]:
        times = []
        for _ in range(count):
            self.synchronize()
            start = time.perf_counter()
            self.evaluate()
            self.synchronize()
            times.append(time.perf_counter() - start)
        return {"times": times}

    def peaks(self) -> dict[str, Any]:
        with self.memory.watching():
            for _ in self.frames:
                self.evaluate()
            self.synchronize()
        return {
            "steady_alloc_gb": self.memory.allocated(),
            "reserved_gb": self.memory.reserved(),
        }

    def count_edges(self) -> int:
        """Pairs within the cutoff in the first frame, each counted twice."""
        import vesin

        search = vesin.NeighborList(cutoff=self.calc.rcut, full_list=True)
        points, cell = self.frames[0], self.atoms.cell.array
        return len(search.compute(points, cell, True, "i")[0])

    def synchronize(self) -> None:
        import torch

        if self.calc.device.type == "cuda":
            torch.cuda.synchronize(self.calc.device)


def _environment(device: Any) -> dict[str, str]:
    """What the numbers belong to; nothing that names a machine or a person."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    packages = {}
    for name in ("dp-calc", "torch", "triton", "vesin", "ase", "numpy"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "none"
    packages["torch"] = torch.__version__
    versions = ", ".join(f"{name} {number}" for name, number in packages.items())
    where = _processor()
    if device.type == "cuda":
        where = f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    return {
        "kind": device.type,
        "device": where,
        "threads": str(torch.get_num_threads()),
        "versions": f"{versions}, Python {platform.python_version()}",
    }


def _processor() -> str:
    import platform

    try:
        with open("/proc/cpuinfo") as lines:
            names = [x.partition(":")[2].strip() for x in lines if "model name" in x]
    except OSError:
        names = []
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def main(job: dict[str, Any]) -> None:
    """Serve one job until the standard input ends."""
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(content: dict[str, Any]) -> None:
        print(json.dumps(content), file=answers, flush=True)

    try:
        bench = _Bench(job)
        answer(bench.warm_up(job))
        for line in sys.stdin:
            count = int(line)
            answer(bench.sample(count) if count else bench.peaks())
    except Exception as error:
        answer({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
