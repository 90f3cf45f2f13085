"""From a checkpoint to a DPA4 model."""

import torch

from ..checkpoint import Checkpoint
from .model import DPA4Model
from .model_options import plain_form, read_model
from .state import load_state

__all__ = ["build", "recognises"]

_LATEST_VERSION = 1.2


def recognises(checkpoint: Checkpoint) -> bool:
    """Whether the branch is of the DPA4 (SeZM) family, whatever it predicts."""
    descriptor = plain_form(checkpoint.params).get("descriptor") or {}
    return str(descriptor.get("type")).lower() in ("dpa4", "sezm")


def build(checkpoint: Checkpoint, dtype: torch.dtype | None) -> DPA4Model:
    """Build the energy model of a branch and give it its tensors.

    Args:
        checkpoint: a branch that is recognised.
        dtype: precision of weights and constants; the checkpoint's own if None.

    Raises:
        UnsupportedOptionError: the model uses an option that this version does not build.
        ValueError: it predicts something else than energies, or the file is damaged.
    """
    _check_energy_model(checkpoint)
    config = read_model(plain_form(checkpoint.params), _version(checkpoint))
    model = DPA4Model(config)
    load_state(model, checkpoint.tensors, str(checkpoint.path))
    # The two energy biases are buffers of the model itself and stay float64.
    model.descriptor.to(dtype or getattr(torch, config.descriptor.precision))
    model.fitting.to(dtype or getattr(torch, config.fitting.precision))
    return model


def _check_energy_model(checkpoint: Checkpoint) -> None:
    if any(k.startswith("atomic_model.dens_fitting_net.") for k in checkpoint.tensors):
        raise ValueError(
            f"{checkpoint.path} holds a denoising model, which has no energy surface; "
            "give an energy model"
        )
    fitting = "atomic_model.fitting_net.filter_layers.networks.0."
    gated = (fitting + "hidden_layers.", fitting + "output_layer.")
    if not any(k.startswith(gated) for k in checkpoint.tensors):
        name = plain_form(checkpoint.params).get("fitting_net", {}).get("type")
        raise ValueError(
            f"{checkpoint.path} has a fitting net of type {name!r} without the layers of "
            "a DPA4 energy fitting; give an energy model"
        )


def _version(checkpoint: Checkpoint) -> float:
    """Version of the descriptor; files without one are the oldest."""
    stored = checkpoint.tensors.get("atomic_model.descriptor.version_tensor")
    version = 1.0 if stored is None else float(stored)
    if not 1.0 <= version <= _LATEST_VERSION:
        raise ValueError(
            f"{checkpoint.path} is of format version {version:g}; versions 1.0 to "
            f"{_LATEST_VERSION} are known"
        )
    return version
