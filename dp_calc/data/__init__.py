"""Data that comes with the package; README.md in this folder says where it is from."""

from importlib.resources import files
from pathlib import Path

__all__ = ["water_model", "water_structure"]


def water_model() -> Path:
    """Checkpoint of a DPA4 potential for liquid water."""
    return Path(str(files(__name__) / "water_mini.pt"))


def water_structure() -> Path:
    """64 water molecules in a periodic cell at about 300 K, with momenta."""
    return Path(str(files(__name__) / "water64.extxyz"))
