"""What is computed: checkpoints and models in plain PyTorch, the oracle of every kernel."""

from .dpa4.config import UnsupportedOptionError
from .dpa4.model import DPA4Model
from .edges import EdgeList
from .loading import ModelSource, load_model

__all__ = ["DPA4Model", "EdgeList", "ModelSource", "UnsupportedOptionError", "load_model"]
