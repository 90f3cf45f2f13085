"""Files that cannot be used: how to make each, and what its error says."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from checkpoints import Content
from dp_calc.models import UnsupportedOptionError


class Case(NamedTuple):
    """``make(path)`` writes the file; its error has ``sentence`` (a pattern) in it."""

    make: Callable[[Path], None]
    sentence: str
    filename: str
    error: type[Exception]


CASES: dict[str, Case] = {}


def case(sentence, filename="model.pt", error=ValueError):
    """Register a function that writes a file."""

    def register(make):
        assert make.__name__ not in CASES
        CASES[make.__name__] = Case(make, sentence, filename, error)
        return make

    return register


def changed(sentence, error=ValueError):
    """Register a function that changes the content of a good checkpoint."""

    def register(change):
        def make(path):
            content = Content()
            change(content)
            content.save(path)

        make.__name__ = change.__name__
        return case(sentence, error=error)(make)

    return register


def wrong_option(section, option, value):
    """Register a checkpoint with one option that is refused by its name."""

    def change(content):
        params = content.params
        (params if section == "model" else params[section])[option] = value

    change.__name__ = f"{section}_{option}={value!r}"
    changed(f"{section} option {option}=", UnsupportedOptionError)(change)
