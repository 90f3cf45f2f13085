"""What is computed: checkpoints and models in plain PyTorch."""

from .classic import ClassicModel
from .cohorts import make_cohorts
from .dpa4 import DPA4Model
from .edges import EdgeList
from .errors import UnsupportedOptionError
from .inputs import InputSpec
from .loading import ModelSource, load_model
from .stream import StreamExecutor

__all__ = [
    "ClassicModel",
    "DPA4Model",
    "EdgeList",
    "InputSpec",
    "ModelSource",
    "StreamExecutor",
    "UnsupportedOptionError",
    "load_model",
    "make_cohorts",
]
