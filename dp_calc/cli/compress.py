"""``dp-calc compress``: a classic model with tables in the place of embedding nets."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .console import CHECKPOINT, print_fields
from .output import check_output, replacing

if TYPE_CHECKING:
    from ..models import ClassicModel

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "compress",
        help="tabulate the embedding nets of a classic model",
        description="Write a classic model whose embedding nets are replaced by tables.",
    )
    add = parser.add_argument
    add("model", metavar="FILE", type=Path, help=CHECKPOINT)
    add("-o", "--output", metavar="OUT", type=Path, required=True, help="new file (.pt)")
    add("--head", help="branch of a multi-task checkpoint")
    add(
        "--stride",
        type=float,
        default=0.01,
        help="width of a row within the range of the training data (default: 0.01)",
    )
    add(
        "--extrapolate",
        type=float,
        default=5.0,
        help="the tables end at this multiple of that range (default: 5)",
    )
    add(
        "--min-nbor-dist",
        metavar="Å",
        type=float,
        help="shortest distance between atoms (default: that of the training data)",
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    check_output(args.output, "a PyTorch file", (".pt",), inputs=(args.model,))
    model = _compressed(args)
    _write(args.output, model)
    print_fields(_fields(model, args.output))
    return 0


def _compressed(args: argparse.Namespace) -> "ClassicModel":
    import torch

    from .. import Settings, load_model
    from ..models.classic.compress import compress

    settings = Settings(compress=True, stride=args.stride, extrapolate=args.extrapolate)
    # In float64 the file serves readers of either precision.
    model = load_model(args.model, args.head, dtype=torch.float64)
    return compress(
        model, settings.stride, settings.extrapolate, min_nbor_dist=args.min_nbor_dist
    )


def _write(path: Path, model: "ClassicModel") -> None:
    from ..models.classic.archive import save_compressed

    with replacing(path) as temporary:
        save_compressed(model, temporary)


def _fields(model: "ClassicModel", path: Path) -> list[tuple[str, str]]:
    tables = model.descriptor.embeddings.values()
    rows = sum(table.domain.rows for table in tables)
    before, after = (p.stat().st_size / 1e6 for p in (model.source.path, path))
    return [
        ("written", str(path)),
        ("architecture", f"{model.architecture}, head {model.source.head}"),
        ("tables", f"{len(tables)} with {rows:,} rows"),
        ("size", f"{after:.1f} MB, was {before:.1f} MB"),
    ]
