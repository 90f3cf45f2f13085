"""Reading training checkpoints (``.pt``) of DeePMD-kit: file -> options and tensors.

Nothing in the file is executed, nothing is guessed: what is not understood is an error.
"""

import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["Checkpoint", "read_checkpoint"]

_OTHER_CONTAINERS = {
    ".pth": "a TorchScript archive",
    ".pt2": "a compiled package bound to one device and one torch version",
    ".pte": "an exported program",
    ".pb": "a TensorFlow graph",
    ".savedmodel": "a TensorFlow or JAX model",
    ".jlo": "a JAX model",
    ".dp": "a backend-neutral archive",
    ".yaml": "a backend-neutral archive",
    ".yml": "a backend-neutral archive",
    ".json": "an input file or a Paddle model",
}


@dataclass(frozen=True)
class Checkpoint:
    """One branch of a checkpoint.

    Attributes:
        path: absolute path of the file.
        head: name of the branch.
        branches: names of all branches; ``("Default",)`` in a single-task file.
        params: the branch's model options as stored.
        tensors: its tensors on the CPU; names relative to the branch.
    """

    path: Path
    head: str
    branches: tuple[str, ...]
    params: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def descriptor_type(self) -> str | None:
        """Name of the descriptor, or of the whole model where there is no descriptor."""
        descriptor = self.params.get("descriptor")
        named = descriptor if isinstance(descriptor, dict) else self.params
        return named.get("type")


def read_checkpoint(path: str | Path, head: str | None = None) -> Checkpoint:
    """Read one branch of a training checkpoint.

    Args:
        path: the ``.pt`` file.
        head: branch of a multi-task file, by name or alias, exactly or ignoring case; may
            be left out where there is only one branch or one named ``Default``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a training checkpoint, or has no such branch.
    """
    path = Path(path).expanduser().resolve()
    state, params = _state_and_params(_load(path), path)
    branches = params.get("model_dict", {"Default": params})
    if head is not None and not isinstance(head, str):
        raise ValueError(f"head must be the name of a branch, not {head!r}")
    name = _select_branch(branches, head, path)
    prefix = f"model.{name}."
    tensors = {
        k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)
    }
    if not tensors:
        raise ValueError(
            f"{path} holds no tensor named {prefix}*: it is damaged or foreign"
        )
    return Checkpoint(path, name, tuple(branches), branches[name], tensors)


def _load(path: Path) -> Any:
    if path.suffix.lower() in _OTHER_CONTAINERS:
        raise ValueError(
            f"{path} is {_OTHER_CONTAINERS[path.suffix.lower()]}, which cannot be read "
            "here; give the training checkpoint (.pt) that it was made from"
        )
    if not path.exists():
        raise FileNotFoundError(f"there is no model file {path}")
    if not path.is_file():
        raise ValueError(f"{path} is a folder; give the checkpoint file (.pt) in it")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} holds more than tensors and plain data, so it was not opened and "
            "nothing in it was run; give a DeePMD-kit training checkpoint (.pt)"
        ) from error
    except (RuntimeError, EOFError, zipfile.BadZipFile, OSError, KeyError) as error:
        raise ValueError(
            f"{path} is not a complete PyTorch file (truncated, or of another format); "
            "copy or download it again, or give a DeePMD-kit training checkpoint (.pt)"
        ) from error


def _state_and_params(content: Any, path: Path) -> tuple[dict, dict]:
    """State dict of the training wrapper and the model options in it."""
    state = content.get("model", content) if isinstance(content, dict) else None
    extra = state.get("_extra_state") if isinstance(state, dict) else None
    params = extra.get("model_params") if isinstance(extra, dict) else None
    if not isinstance(params, dict):
        raise ValueError(
            f"{path} is a PyTorch file but not a DeePMD-kit training checkpoint: it "
            "holds no model options"
        )
    tensors = {k: v for k, v in state.items() if isinstance(v, Tensor)}
    return tensors, params


def _select_branch(branches: dict[str, dict], head: str | None, path: Path) -> str:
    names = {name: name for name in branches}
    for name, params in branches.items():
        for alias in params.get("model_branch_alias") or ():
            names.setdefault(alias, name)
    listed = ", ".join(sorted(names))
    if head is None:
        if "Default" in names:
            return names["Default"]
        if len(branches) == 1:
            return next(iter(branches))
        raise ValueError(
            f"{path} holds several heads; choose one with head=...: {listed}"
        )
    if head in names:
        return names[head]
    found = {target for name, target in names.items() if name.lower() == head.lower()}
    if len(found) != 1:
        raise ValueError(f"{path} has no head {head!r}; its heads are: {listed}")
    return found.pop()
