"""``dp-calc evaluate``: energies, forces and stress of the structures in files."""

import argparse
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from .console import CHECKPOINT
from .output import check_output

if TYPE_CHECKING:
    from ase import Atoms

    from ..batch import Batches
    from .frames import FrameFiles
    from .partial import Partial

__all__ = ["add_parser"]

_INTERRUPTED = 130
_DESCRIPTION = """\
Evaluate every structure in files of any format that ASE reads, many at a time.

A line for each structure goes to the terminal. With -o structures and results go to an
extended XYZ file or an ASE database, batch by batch to OUTPUT.part, which becomes OUTPUT
when all is done. A structure that cannot be evaluated keeps its place there, with the
reason under "error" (in info, or as a key of the row); the exit status is then 1.

Whatever stops the run, all finished batches are kept, and the same command with --resume
goes on after them. In the end the output is the same as without the stop.
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "evaluate",
        help="evaluate the structures in files",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "structures",
        metavar="STRUCTURES",
        type=Path,
        nargs="+",
        help="any files that ASE reads",
    )
    add("-m", "--model", metavar="FILE", type=Path, required=True, help=CHECKPOINT)
    add(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="structures and results: .extxyz or .xyz for extended XYZ, .db for a "
        "database of ASE",
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--resume",
        action="store_true",
        help="go on with an output that was begun, if there is one",
    )
    either.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the output of an earlier run, once the new one is complete",
    )
    add("--head", help="branch of a multi-task checkpoint")
    add("--device", help="cpu, cuda, cuda:1, ... (default: chosen by what is there)")
    add("--dtype", choices=("float32", "float64"), help="default: that of the checkpoint")
    add(
        "--max-edges",
        metavar="N",
        type=int,
        help="most neighbours of atoms in a batch, which bounds the memory",
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    _check(args)
    from .frames import FrameFiles

    files = FrameFiles(args.structures)
    if args.resume and args.output.is_file() and not _is_unfinished(args.output):
        print(
            f"dp-calc: {args.output} is complete already; nothing was run, and what it "
            "was made from is not known any more; --overwrite makes it anew",
            file=sys.stderr,
        )
        return 0
    batches = _load(args)
    with _destination(args, files, batches) as partial:
        try:
            failed = _evaluate(files, batches, partial)
        except KeyboardInterrupt:
            return _stopped(partial, len(files))
        if partial is not None:
            partial.complete()
    if failed:
        print(f"dp-calc: {failed} of {len(files)} frames failed", file=sys.stderr)
    return 1 if failed else 0


def _check(args: argparse.Namespace) -> None:
    """Refuse what cannot be done, before anything is read."""
    from .part_files import DATABASE, EXTXYZ
    from .partial import beside, check_unfinished

    if args.max_edges is not None and args.max_edges < 1:
        raise ValueError(f"--max-edges must be at least 1, not {args.max_edges}")
    if args.output is None:
        if args.resume or args.overwrite:
            raise ValueError(
                "--resume and --overwrite are about an output; name it by -o"
            )
        return
    inputs = (*args.structures, args.model)
    kinds = "extended XYZ or a database of ASE"
    check_output(args.output, kinds, (*EXTXYZ, *DATABASE), inputs)
    for path in beside(args.output):
        check_output(path, "", (path.suffix,), inputs)
    check_unfinished(args.output, args.resume, args.overwrite)


def _is_unfinished(output: Path) -> bool:
    from .partial import beside

    return beside(output)[0].exists()


def _load(args: argparse.Namespace) -> "Batches":
    from .. import DP
    from ..batch import Batches

    calc = DP(args.model, head=args.head, device=args.device, dtype=args.dtype)
    return Batches(calc, max_edges=args.max_edges)


def _destination(args: argparse.Namespace, files: "FrameFiles", batches: "Batches"):
    """Context of the unfinished output; of None without one."""
    if args.output is None:
        return nullcontext()
    from .. import __version__
    from .partial import open_partial

    model = batches.calc.model
    run = {
        "structures": files.digest(),
        "model": model.source.sha256,
        "head": model.source.head,
        "dtype": str(model.dtype).removeprefix("torch."),
        "max-edges": args.max_edges,
        "version of dp-calc": __version__,
    }
    return open_partial(args.output, run, args.resume)


def _evaluate(files: "FrameFiles", batches: "Batches", partial: "Partial | None") -> int:
    """Evaluate what is not done yet; how many structures have failed in all."""
    from .evaluated import with_results
    from .rows import Rows

    start = 0 if partial is None else partial.n_frames
    failed = 0 if partial is None else partial.n_failed
    given: deque[Atoms] = deque()
    with Rows(files, start) as rows:
        for results in batches.run(_remembered(files.read(start), given)):
            done = [with_results(given.popleft(), result) for result in results]
            if partial is not None:
                partial.add(done)
            failed += sum("error" in result for result in results)
            rows.add(done)
    return failed


def _remembered(frames: Iterable["Atoms"], given: deque["Atoms"]) -> Iterator["Atoms"]:
    for frame in frames:
        given.append(frame)
        yield frame


def _stopped(partial: "Partial | None", total: int) -> int:
    """Tell where a signal stopped the run; the exit status, as shells count."""
    after = ""
    if partial is not None:
        after = (
            f" after {partial.n_frames} of {total} structures, which are kept; the same "
            "command with --resume goes on"
        )
    print(f"dp-calc: interrupted{after}", file=sys.stderr)
    return _INTERRUPTED
