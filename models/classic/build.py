"""From a checkpoint to a classic model."""

import torch

from ..checkpoint import Checkpoint
from ..errors import UnsupportedOptionError
from .archive import put_tables
from .environment import Environment
from .model import ClassicModel
from .options import descriptor_kind, read_model
from .state import load_state

__all__ = ["build", "recognises"]


def recognises(checkpoint: Checkpoint) -> bool:
    """Whether the branch has a classic descriptor, whatever it predicts."""
    return descriptor_kind(checkpoint.descriptor_type) is not None


def build(checkpoint: Checkpoint, dtype: torch.dtype | None) -> ClassicModel:
    """Build the energy model of a branch and give it its tensors.

    Args:
        checkpoint: a branch that is recognised.
        dtype: precision of weights and statistics; the checkpoint's own if None.

    Raises:
        UnsupportedOptionError: the model uses an option that this version does not build.
        ValueError: it predicts something else than energies, or the file is damaged.
    """
    fitting = (checkpoint.params.get("fitting_net") or {}).get("type", "ener")
    if fitting != "ener":
        raise ValueError(
            f"{checkpoint.path} has a fitting net of type {fitting!r}; give an energy "
            "model"
        )
    config = read_model(checkpoint.params)
    model, tensors = ClassicModel(config), checkpoint.tensors
    if checkpoint.own_format:
        tensors = put_tables(model, tensors, str(checkpoint.path))
    load_state(model, config.descriptor, tensors, str(checkpoint.path))
    model.min_nbor_dist = _min_nbor_dist(checkpoint)
    _check_absent_rows(model.descriptor.environment)
    # The two energy biases are buffers of the model itself and stay float64.
    model.descriptor.to(dtype or getattr(torch, config.descriptor.precision))
    model.fitting.to(dtype or getattr(torch, config.fitting.precision))
    return model


def _min_nbor_dist(checkpoint: Checkpoint) -> float | None:
    """Shortest distance in the training data; -1 in the file stands for unknown."""
    stored = checkpoint.tensors.get("min_nbor_dist")
    known = stored is not None and stored.numel() == 1 and stored > 0
    return float(stored) if known else None


def _check_absent_rows(environment: Environment) -> None:
    """Refuse statistics for which absent neighbours would count in other ways."""
    mean, config = environment.mean, environment.config
    if mean[:, 1:].any():
        raise UnsupportedOptionError(
            "the mean of the environment matrix has directional components, which this "
            "version does not build"
        )
    typed = config.tebd_mode == "concat" or not config.smooth
    if config.kind == "dpa1" and typed and mean.any():
        raise UnsupportedOptionError(
            "descriptor options tebd_input_mode='concat' or smooth_type_embedding=False "
            "are not supported with a non-zero mean of the environment matrix: the "
            "energy would depend on which atom comes first"
        )
