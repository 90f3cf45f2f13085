"""From a file to a model that is ready to evaluate."""

from pathlib import Path

import torch

from . import classic, dpa4
from .checkpoint import Checkpoint, read_checkpoint
from .errors import UnsupportedOptionError
from .hub import checksum, resolve
from .potential import ModelSource, Potential

__all__ = ["load_model"]

_FAMILIES = (dpa4, classic)


def load_model(
    path: str | Path,
    head: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Potential:
    """Load a model from a training checkpoint, or from a file of ``dp-calc compress``.

    Args:
        path: the ``.pt`` file of DeePMD-kit or of this package, or the name of a released
            model; see ``hub.resolve``.
        head: branch of a multi-task file; see ``read_checkpoint``.
        device: where to put it; the CPU if not given.
        dtype: float32 or float64; the checkpoint's own if not given.

    Returns:
        The model with frozen parameters: ``model(types, edges)`` gives atomic energies,
        ``model.source`` tells where it came from.

    Raises:
        FileNotFoundError: there is no such file.
        UnsupportedOptionError: the model uses an option that this version does not build.
        ValueError: the file is no training checkpoint of a known model, or damaged.
    """
    if dtype not in (None, torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, not {dtype!r}")
    checkpoint = read_checkpoint(resolve(path), head)
    try:
        model = _build(checkpoint, dtype).requires_grad_(False)
    except UnsupportedOptionError as error:
        raise UnsupportedOptionError(f"{checkpoint.path}: {error}") from None
    model.source = _source(model, checkpoint)
    return model.to(device or "cpu").eval()


def _build(checkpoint: Checkpoint, dtype: torch.dtype | None) -> Potential:
    for family in _FAMILIES:
        if family.recognises(checkpoint):
            return family.build(checkpoint, dtype)
    raise ValueError(
        f"{checkpoint.path} holds a model of type {checkpoint.descriptor_type!r}; only "
        "energy models of the types DPA4 (SeZM), se_e2_a, se_e2_r, se_e3, se_e3_tebd and "
        "DPA-1 (se_atten) can be read"
    )


def _source(model: Potential, checkpoint: Checkpoint) -> ModelSource:
    observed = (checkpoint.params.get("info") or {}).get("observed_type")
    return ModelSource(
        path=checkpoint.path,
        sha256=checksum(checkpoint.path),
        architecture=model.architecture,
        head=checkpoint.head,
        branches=checkpoint.branches,
        version=model.version,
        n_parameters=sum(p.numel() for p in model.parameters()),
        options=dict(dpa4.plain_form(checkpoint.params)["descriptor"]),
        params=checkpoint.params,
        observed_types=tuple(observed) if observed else None,
    )
