"""Where a model runs and in which precision, checked before anything is loaded."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import torch
from torch import nn

from . import models
from .models import Potential
from .processes import note_use, refuse_fork

__all__ = [
    "load_model",
    "open_model",
    "ordinary_tensors",
    "pick_device",
    "pick_dtype",
]

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def load_model(
    path: str | Path,
    head: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
) -> Potential:
    """Load the bare model of a checkpoint.

    Args:
        path: the ``.pt`` file, or the name of a released model.
        head: branch of a multi-task file, by name or alias.
        device: like ``"cpu"`` or ``"cuda:0"``; None is CUDA if available, else the CPU.
        dtype: ``"float32"`` or ``"float64"``; None is the checkpoint's own.

    Returns:
        The model with frozen parameters: ``model(types, edges)`` gives the energy of each
        atom in eV, (N,) float64.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be used, or the device or precision cannot be had.
    """
    device = pick_device(device)
    refuse_fork(device)
    note_use(device)
    return models.load_model(path, head, device, pick_dtype(dtype))


def open_model(
    model: str | Path | nn.Module,
    head: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
) -> Potential:
    """Load a model from a file, or take one that is loaded already, as it is.

    Args:
        model: path of the file, or the module.
        head: branch of a multi-task file.
        device: see :func:`pick_device`.
        dtype: see :func:`pick_dtype`; None is the checkpoint's own.

    Raises:
        TypeError: ``model`` is neither a path nor a module.
        ValueError: device or precision cannot be had, or differ from the loaded module's;
            or the file cannot be used, see ``load_model``.
    """
    dtype = pick_dtype(dtype)
    if isinstance(model, str | Path):
        return load_model(model, head, device, dtype)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a path or a loaded model, not {model!r}")
    if not hasattr(model, "type_map") or not hasattr(model, "rcut"):
        raise TypeError(
            "model must be a path or a model from load_model, not a "
            f"{type(model).__name__}"
        )
    model = cast(Potential, model)
    # Moving or casting it would change an object that is the caller's.
    given = {
        "head": head is not None,
        "device": device is not None and pick_device(device) != model.device,
        "dtype": dtype not in (None, model.dtype),
    }
    if any(given.values()):
        names = " and ".join(name for name, differs in given.items() if differs)
        raise ValueError(
            f"the model is loaded already and stays as it is; give {names} to load_model"
        )
    return model


@contextmanager
def ordinary_tensors() -> Iterator[None]:
    """Shut out the caller's inference mode and ``torch.set_default_device``.

    They make tensors that cannot be differentiated, or that are not on the CPU though no
    device was named.
    """
    with torch.inference_mode(False), ExitStack() as stack:
        if torch.get_default_device().type != "cpu":  # seldom, and slow later on
            stack.enter_context(torch.device("cpu"))
        yield


def pick_device(device: torch.device | str | None) -> torch.device:
    """Check a device; None is the current CUDA device if there is one, else the CPU.

    Raises:
        ValueError: PyTorch does not know or does not have the device.
    """
    present = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if device is None:
        device = "cuda" if present else "cpu"
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f'device must be "cpu", "cuda" or like "cuda:0", not {device!r}'
        ) from error
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type == "cuda" and device.index is None and present:
        device = torch.device("cuda", torch.cuda.current_device())
    if str(device) not in present:
        available = ", ".join(["cpu", *present])
        raise ValueError(f'device "{device}" is not available here, only {available}')
    return device


def pick_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """Check a precision, given as a dtype or by name; None stays None.

    Raises:
        ValueError: it is neither float32 nor float64.
    """
    found = _DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if dtype is not None and found not in _DTYPES.values():
        raise ValueError(f'dtype must be "float32" or "float64", not {dtype!r}')
    return found
