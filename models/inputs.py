"""Inputs of a model beside types and edges."""

from dataclasses import dataclass

__all__ = ["InputSpec"]


@dataclass(frozen=True)
class InputSpec:
    """One further input that a model reads.

    Attributes:
        name: key in the ``conditions`` of the model.
        width: number of values, of the whole system or of each atom.
        per_atom: whether every atom has its own values: (N, width) instead of (width,).
            The other inputs may be (N, width) too, for atoms of several systems at once.
        required: whether the model has no default for it.
    """

    name: str
    width: int
    per_atom: bool = False
    required: bool = True
