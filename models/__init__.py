"""What is computed: checkpoints and models in plain PyTorch."""

from .classic import ClassicModel
from .cohorts import make_cohorts
from .dpa4 import DPA4Model
from .edges import EdgeList
from .errors import UnsupportedOptionError
from .inputs import InputSpec
from .loading import load_model
from .potential import ModelSource, Potential
from .stream import StreamExecutor
from .tiled import TiledExecutor
from .tiles import make_tiles

__all__ = [
    "ClassicModel",
    "DPA4Model",
    "EdgeList",
    "InputSpec",
    "ModelSource",
    "Potential",
    "StreamExecutor",
    "TiledExecutor",
    "UnsupportedOptionError",
    "load_model",
    "make_cohorts",
    "make_tiles",
]
