"""The DPA4 model: SO(3)-equivariant message passing in the frame of each edge."""

from .build import build, recognises
from .model import DPA4Model
from .model_options import plain_form

__all__ = ["DPA4Model", "build", "plain_form", "recognises"]
