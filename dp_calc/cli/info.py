"""``dp-calc info``: what a checkpoint holds and how it would be run here."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .console import CHECKPOINT, print_fields

if TYPE_CHECKING:
    from .. import DP
    from ..models import InputSpec

__all__ = ["add_parser", "model_fields"]

_SIZES = (
    "n_blocks",
    "channels",
    "lmax",
    "mmax",
    "l_schedule",
    "m_schedule",
    "neuron",
    "axis_neuron",
)
"""Descriptor options that tell how large a model is, by their names in the file."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "info",
        help="show what a checkpoint holds",
        description="Show what a checkpoint holds and how it would be run here.",
    )
    parser.add_argument("model", metavar="FILE", type=Path, help=CHECKPOINT)
    parser.add_argument("--head", help="branch of a multi-task checkpoint")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from .. import DP
    from ..models.errors import SeveralHeadsError

    try:
        fields = model_fields(DP(args.model, head=args.head))
    except SeveralHeadsError as error:
        fields = _heads_fields(args.model, error.heads)
    print_fields(fields)
    return 0


def _heads_fields(path: Path, heads: dict[str, str]) -> list[tuple[str, str]]:
    """What to tell of a file with several heads when none is chosen."""
    fields = [("file", str(path.resolve()))]
    for name in dict.fromkeys(heads.values()):
        aliases = [a for a, target in heads.items() if target == name != a]
        fields.append(
            ("head", name + (f" (also {', '.join(aliases)})" if aliases else ""))
        )
    return [*fields, ("to see one", "dp-calc info FILE --head NAME")]


def model_fields(calc: "DP") -> list[tuple[str, str]]:
    """Names and values that describe the model of a calculator."""
    source = calc.model.source
    branches = ", ".join(source.branches)
    loaded = f" (loaded: {source.head})" if len(source.branches) > 1 else ""
    megabytes = source.path.stat().st_size / 1e6
    fields = [
        ("file", str(source.path)),
        ("architecture", _architecture(calc)),
        ("size", f"{source.n_parameters:,} parameters, {megabytes:.1f} MB"),
        ("elements", " ".join(calc.type_map)),
        ("cutoff", f"{calc.rcut:g} Å"),
        ("branches", branches + loaded),
        ("version", f"{source.version:g}"),
        ("runs as", calc.settings.describe(calc.model)),
    ]
    if source.observed_types and set(source.observed_types) != set(calc.type_map):
        fields.insert(4, ("trained on", " ".join(source.observed_types)))
    if source.params.get("lora"):
        fields.append(("adapters", "low-rank adapters (LoRA), folded into the weights"))
    bridging = getattr(getattr(calc.model.config, "descriptor", None), "bridging", None)
    if bridging:
        fields.append(
            ("short range", f"ZBL, learned part frozen below {bridging[0]:g} Å")
        )
    if calc.model.inputs:
        fields.append(("also reads", ", ".join(map(_describe, calc.model.inputs))))
    return fields


def _describe(spec: "InputSpec") -> str:
    count = f"{spec.width} per atom" if spec.per_atom else str(spec.width)
    return f"{spec.name} ({count}, {'required' if spec.required else 'optional'})"


def _architecture(calc: "DP") -> str:
    from ..models.classic.compress import is_compressed

    source = calc.model.source
    options = {k: v for k, v in source.options.items() if v is not None}
    hidden = {"n_blocks", "lmax"} if "l_schedule" in options else set()
    if "m_schedule" in options:
        hidden.add("mmax")
    sizes = [f"{k} {options[k]}" for k in _SIZES if k in options and k not in hidden]
    if is_compressed(calc.model):
        sizes.append("embedding nets as tables")
    return f"{source.architecture} ({', '.join(sizes)})"
