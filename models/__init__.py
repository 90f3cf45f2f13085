"""What is computed: checkpoints and models in plain PyTorch."""

from .classic import ClassicModel
from .dpa4 import DPA4Model
from .edges import EdgeList
from .errors import UnsupportedOptionError
from .inputs import InputSpec
from .loading import ModelSource, load_model

__all__ = [
    "ClassicModel",
    "DPA4Model",
    "EdgeList",
    "InputSpec",
    "ModelSource",
    "UnsupportedOptionError",
    "load_model",
]
