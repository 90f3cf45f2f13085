"""Arms of a benchmark: settings that have a name."""

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["ARMS", "Arm", "parse_arm"]

ARMS: dict[str, dict[str, Any]] = {
    "dp_calc-auto": {},
    "dp_calc-torch": {"kernels": "torch", "compile": True, "backward": "stream"},
    "dp_calc-native": {"kernels": "triton", "backward": "native", "precision": "exact"},
    "dp_calc-cohort": {"kernels": "triton", "backward": "cohort", "precision": "exact"},
    "dp_calc-stream": {"kernels": "triton", "backward": "stream", "precision": "exact"},
    "dp_calc-fast": {"kernels": "triton", "precision": "fast"},
}
"""Settings by name; the first are what a user gets without any."""


@dataclass(frozen=True)
class Arm:
    """A name and its settings.

    Attributes:
        name: as in the column ``arm``.
        settings: keywords of ``DP``.
    """

    name: str
    settings: dict[str, Any]


def parse_arm(text: str) -> Arm:
    """Read an arm from a command line.

    Args:
        text: a name from ``ARMS``, which settings may follow, as in
            ``dp_calc-auto:skin=0,backward=native``.

    Raises:
        ValueError: there is no such arm, or what follows is not of this form.
    """
    name, _, changes = text.partition(":")
    if name not in ARMS:
        raise ValueError(f"there is no arm {name!r}; the arms are {', '.join(ARMS)}")
    settings = dict(ARMS[name])
    for change in changes.split(",") if changes else ():
        key, equals, value = change.partition("=")
        if not (key.isidentifier() and equals):
            raise ValueError(
                f"the arm {text!r} must end in settings like skin=0,backward=native"
            )
        settings[key] = _value(value)
    return Arm(text, settings)


def _value(text: str) -> Any:
    """A number, a truth value, None, or else the text itself."""
    constants = {"True": True, "False": False, "None": None}
    if text in constants:
        return constants[text]
    try:
        number = json.loads(text)
    except ValueError:
        return text
    return number if isinstance(number, int | float) else text
