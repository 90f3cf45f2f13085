"""``dp-calc models``: the released checkpoints that can be given by name."""

import argparse
from typing import TYPE_CHECKING

from .console import print_table

if TYPE_CHECKING:
    from ..models.hub import ReleasedModel

__all__ = ["add_parser"]

_HEADER = ("name", "parameters", "MB", "file on this machine")


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "models",
        help="list the released checkpoints",
        description="List the released checkpoints and which are on this machine. "
        "Each can be given by its name wherever a checkpoint is wanted; one that is not "
        "here is then fetched, if dp-calc[hub] is installed.",
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from ..models.hub import released_models

    print_table(_HEADER, [_row(model) for model in released_models()])
    return 0


def _row(model: "ReleasedModel") -> tuple[str, ...]:
    start = (model.name, f"{model.n_parameters:,}")
    if model.path is None:
        return (*start, "-", "-")
    return (*start, f"{model.path.stat().st_size / 1e6:.1f}", str(model.path))
