"""From a checkpoint to a DPA4 model."""

import math
from typing import Any

import torch
from torch import Tensor

from ..checkpoint import Checkpoint
from .deepspin import DeepSpinModel
from .legacy import upgrade
from .model import DPA4Model
from .model_options import plain_form, read_model
from .state import load_state

__all__ = ["build", "recognises"]

_LATEST_VERSION = 1.2
_NAMES = ("dpa4", "sezm")

# Older files name the gated net like the classic one: the tensors tell them apart.
_ENERGY_FITTINGS = ("dpa4_ener", "sezm_ener", "ener")
_NETWORK = "atomic_model.fitting_net.filter_layers.networks.0."
_GATED_LAYERS = (_NETWORK + "hidden_layers.", _NETWORK + "output_layer.")
_ATOMIC_NUMBERS = "inter_potential.atomic_numbers"


def recognises(checkpoint: Checkpoint) -> bool:
    """Whether the branch is of the DPA4 (SeZM) family, whatever it predicts."""
    params = plain_form(checkpoint.params)
    descriptor = params.get("descriptor") or {}
    named = descriptor.get("type", params.get("type"))
    return str(named).lower() in _NAMES


def build(checkpoint: Checkpoint, dtype: torch.dtype | None) -> DPA4Model:
    """Build the energy model of a branch and give it its tensors.

    Args:
        checkpoint: a branch that is recognised.
        dtype: precision of weights and constants; the checkpoint's own if None.

    Raises:
        UnsupportedOptionError: the model uses an option that this version does not build.
        ValueError: it predicts something else than energies, or the file is damaged.
    """
    params = plain_form(checkpoint.params)
    _check_energy_model(checkpoint, params)
    version = _version(checkpoint)
    config = read_model(params, version)
    tensors = upgrade(checkpoint.tensors, version, config.descriptor.magnetic_types)
    if config.virtual_spin is None:
        model = DPA4Model(config)
    else:
        model = DeepSpinModel(config)
        tensors = _with_virtual_numbers(tensors)
    load_state(model, tensors, str(checkpoint.path))
    # The two energy biases are buffers of the model itself and stay float64.
    model.descriptor.to(dtype or getattr(torch, config.descriptor.precision))
    model.fitting.to(dtype or getattr(torch, config.fitting.precision))
    return model


def _check_energy_model(checkpoint: Checkpoint, params: dict[str, Any]) -> None:
    path, names = checkpoint.path, checkpoint.tensors
    if not params.get("descriptor"):
        raise ValueError(
            f"{path} holds a DPA4 model without a descriptor section; it is damaged"
        )
    if any(k.startswith("atomic_model.dens_fitting_net.") for k in names):
        raise ValueError(
            f"{path} holds a denoising model (dens), which has no energy surface; give "
            "an energy model"
        )
    fitting = (params.get("fitting_net") or {}).get("type", "dpa4_ener")
    if fitting == "property":
        raise ValueError(
            f"{path} holds a property model, which has no energy surface; give an energy "
            "model"
        )
    if fitting not in _ENERGY_FITTINGS:
        raise ValueError(
            f"{path} has a fitting net of type {fitting!r}, which DPA4 energy models do "
            "not have; give an energy model"
        )
    if not any(k.startswith(_GATED_LAYERS) for k in names):
        raise ValueError(
            f"{path} has a fitting net of type {fitting!r} without the gated layers of "
            "DPA4: it is a classic network, or damaged; give a DPA4 energy model"
        )


def _version(checkpoint: Checkpoint) -> float:
    """Version of the descriptor; files without one are the oldest."""
    stored = checkpoint.tensors.get("atomic_model.descriptor.version_tensor")
    if stored is None:
        return 1.0
    # Rounded: a file may have been converted to float32 as a whole.
    version = round(float(stored), 6) if stored.numel() == 1 else math.nan
    if not 1.0 <= version <= _LATEST_VERSION:
        raise ValueError(
            f"{checkpoint.path} is of format version {version:g}; versions 1.0 to "
            f"{_LATEST_VERSION} are known"
        )
    return version


def _with_virtual_numbers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Atomic numbers of virtual atoms as well; the file has those of real ones."""
    numbers = tensors.get(_ATOMIC_NUMBERS)
    if numbers is None:
        return tensors
    return {**tensors, _ATOMIC_NUMBERS: torch.cat([numbers, numbers])}
