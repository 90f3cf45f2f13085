"""Options of ``dp-calc md``."""

import argparse

from .ensembles import ENSEMBLES
from .simulation import add_number, whole

__all__ = ["PHYSICS", "add_physics_options", "add_step_options"]

PHYSICS = (
    "ensemble",
    "timestep_fs",
    "temperature_k",
    "pressure_gpa",
    "friction_per_ps",
    "tau_t_fs",
    "tau_p_fs",
    "compressibility_per_gpa",
    "new_velocities",
    "seed",
    "every",
)
"""Options that must stay as they are when a run goes on."""


def add_step_options(parser: argparse.ArgumentParser) -> None:
    """Add how many steps there are, and what is written when."""
    add = parser.add_argument
    add(
        "--steps",
        metavar="N",
        type=whole("number of steps", 1),
        required=True,
        help="steps in all, those before --resume included",
    )
    add(
        "--every",
        metavar="N",
        type=whole("number of steps", 1),
        help="steps between frames and rows (default: 10)",
    )
    add(
        "--save-every",
        metavar="N",
        type=whole("number of steps", 1),
        default=100,
        help="steps between checkpoints (default: 100)",
    )


def add_physics_options(parser: argparse.ArgumentParser) -> None:
    """Add what is simulated; all numbers have their unit in the name."""
    parser.add_argument("--ensemble", choices=tuple(ENSEMBLES), help="default: nve")
    add_number(parser, "timestep-fs", "in fs (default: 0.5)", least=1e-3, most=20)
    add_number(
        parser,
        "temperature-k",
        "of the thermostat, and of velocities that are drawn, in K",
        least=0.0,
        most=1e5,
    )
    add_number(
        parser,
        "pressure-gpa",
        "of the barostat, in GPa; 1 bar is 0.0001 GPa",
        least=-1e3,
        most=1e3,
    )
    _add_couplings(parser)
    parser.add_argument(
        "--new-velocities",
        action="store_true",
        default=None,
        help="draw velocities (Maxwell-Boltzmann, no drift) though the file has some",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=whole("seed", 0),
        help="of all random numbers (default: a new one, which is shown)",
    )
    hot = "a system hotter than this has gone wrong, in K (default: 10000)"
    add_number(parser, "stop-above-k", hot, above=0.0, most=1e9, default=1e4)


def _add_couplings(parser: argparse.ArgumentParser) -> None:
    add_number(
        parser,
        "friction-per-ps",
        "of Langevin's thermostat, in 1/ps (default: 10)",
        above=0.0,
        most=1e4,
    )
    for name, what, default in (("t", "thermostat", 100), ("p", "barostat", 1000)):
        text = f"time constant of the {what}, in fs (default: {default})"
        add_number(parser, f"tau-{name}-fs", text, above=0.0, most=1e6)
    add_number(
        parser,
        "compressibility-per-gpa",
        "for npt-berendsen, in 1/GPa (default: 0.46, that of water)",
        above=0.0,
        most=1e3,
    )
