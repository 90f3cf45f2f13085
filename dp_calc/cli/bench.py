"""``dp-calc bench``: time and memory of an evaluation, for models, sizes and settings."""

import argparse
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import CHECKPOINT, print_table, progress
from .output import check_output, replacing

if TYPE_CHECKING:
    from ..bench.arms import Arm
    from ..bench.sitting import Counts, Row

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "bench",
        help="time evaluations of diamond",
        description="Time evaluations of diamond through ASE and measure their memory. "
        "Each arm, a named set of settings, runs in a process of its own. What fails is "
        "a row too, and the exit status is then 1.",
    )
    add = parser.add_argument
    add("-m", "--model", metavar="FILE", nargs="+", required=True, help=CHECKPOINT)
    add("--atoms", metavar="N", type=int, nargs="+", default=[96, 1000, 4096])
    add(
        "--arms",
        metavar="ARM",
        nargs="+",
        default=["dp_calc-auto"],
        help="dp_calc-auto, -torch, -native, -cohort, -stream or -fast; settings may "
        "follow, as in dp_calc-auto:skin=0,backward=native (default: dp_calc-auto)",
    )
    add("-o", "--output", metavar="CSV", type=Path, help="the table")
    add("--plot", metavar="PNG", type=Path, help="picture of time and memory")
    add("--repeats", type=int, default=60, help="timed evaluations (default: 60)")
    add("--blocks", type=int, default=6, help="rounds over the arms (default: 6)")
    add("--warmups", type=int, default=12, help="evaluations before (default: 12)")
    add("--head", help="branch of a multi-task checkpoint")
    add("--device", help="cpu, cuda, cuda:1, ... (default: chosen by what is there)")
    add("--dtype", choices=("float32", "float64"), help="default: that of the checkpoint")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from ..bench.arms import parse_arm
    from ..bench.carbon import repeats_of
    from ..bench.sitting import COLUMNS, Counts
    from ..bench.table import describe

    arms = [parse_arm(text) for text in args.arms]
    counts = Counts(args.warmups, args.repeats, args.blocks)
    for n_atoms in args.atoms:
        repeats_of(n_atoms)
    _check_outputs(args)
    rows = []
    for new, environment in _sittings(args, arms, counts):
        rows += new
        _save(args, rows, describe(environment, _command(args), arms, counts))
    print_table(COLUMNS, [_cells(row) for row in rows])
    return 0 if all(row["success"] is True for row in rows) else 1


def _check_outputs(args: argparse.Namespace) -> None:
    models = [Path(model) for model in args.model]
    for path, kind, suffix in (
        (args.output, "CSV", ".csv"),
        (args.plot, "a PNG picture", ".png"),
    ):
        if path is not None:
            check_output(path, kind, (suffix,), models)


def _sittings(
    args: argparse.Namespace, arms: Sequence["Arm"], counts: "Counts"
) -> Iterator[tuple[list["Row"], dict[str, str] | None]]:
    """Rows of each model and size, under one progress bar."""
    from ..bench.sitting import measure

    options = {"head": args.head, "device": args.device, "dtype": args.dtype}
    cases = [(model, n_atoms) for model in args.model for n_atoms in args.atoms]

    def steps() -> Iterator[Any]:
        for model, n_atoms in cases:
            yield from measure(model, n_atoms, arms, counts, options)

    total = len(cases) * (len(arms) * (1 + counts.blocks) + 1)
    for new, environment in progress(steps(), total, "step"):
        if new:
            yield new, environment


def _save(args: argparse.Namespace, rows: Sequence["Row"], circumstances: str) -> None:
    """Write what there is so far: a sitting may be cut short."""
    from ..bench.table import write

    if args.output is not None:
        with replacing(args.output) as temporary:
            write(temporary, circumstances, rows)
    if args.plot is not None:
        from ..bench.plot import draw

        with replacing(args.plot) as temporary:
            draw(temporary, rows)


def _command(args: argparse.Namespace) -> str:
    """The command line in full, with files by name only."""
    words = ["dp-calc", "bench", "--model", *(Path(model).name for model in args.model)]
    for name in ("atoms", "arms", "repeats", "blocks", "warmups", "head", "device"):
        value = getattr(args, name)
        if value is not None:
            values = value if isinstance(value, list) else [value]
            words += [f"--{name}", *map(str, values)]
    if args.dtype is not None:
        words += ["--dtype", args.dtype]
    return shlex.join(words)


def _cells(row: "Row") -> list[str]:
    """Cells of a row; a failure has nothing to show between its arm and the reason."""
    cells = [str(value) for value in row.values()]
    return cells if row["success"] is True else [*cells[:4], cells[-1]]
