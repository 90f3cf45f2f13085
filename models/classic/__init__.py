"""Classic DeePMD models: descriptors from an environment matrix and embedding nets."""

from .build import build, recognises
from .model import ClassicModel

__all__ = ["ClassicModel", "build", "recognises"]
