"""Reading training checkpoints (``.pt``) of DeePMD-kit: file -> options and tensors.

Nothing in the file is executed, nothing is guessed: what is not understood is an error.
"""

import pickle
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .errors import SeveralHeadsError
from .file_kind import why_not_pytorch
from .lora import fold_adapters

__all__ = ["FORMAT", "FORMAT_KEY", "Checkpoint", "read_checkpoint"]

FORMAT_KEY, FORMAT = "dp_calc_format", 1
"""Entry that tells files of this package from training checkpoints, and its value."""

# Parts of tensor names that only the exporting PyTorch backend writes.
_EXPORTABLE_DIALECT = re.compile(
    r"\.(original_model|compiled_forward_lower)\.|\._task_|\.fitting_net\.nets\."
)


@dataclass(frozen=True)
class Checkpoint:
    """One branch of a checkpoint.

    Attributes:
        path: absolute path of the file.
        head: name of the branch.
        branches: names of all branches; ``("Default",)`` in a single-task file.
        params: the branch's model options as stored.
        tensors: its tensors on the CPU; names relative to the branch.
        own_format: whether this package wrote the file, with names of its own modules.
    """

    path: Path
    head: str
    branches: tuple[str, ...]
    params: dict[str, Any]
    tensors: dict[str, Tensor]
    own_format: bool = False

    @property
    def descriptor_type(self) -> str | None:
        """Name of the descriptor, or of the whole model where there is no descriptor."""
        descriptor = self.params.get("descriptor")
        named = descriptor if isinstance(descriptor, dict) else self.params
        return named.get("type")


def read_checkpoint(path: str | Path, head: str | None = None) -> Checkpoint:
    """Read one branch of a training checkpoint.

    The weights are those that training left (``model``), low-rank adapters folded in.
    Averaged weights that the same file may hold beside them (``ema``) are not read, as in
    DeePMD-kit: they have a file of their own, ``..._ema-STEP.pt``, which is read like
    any other.

    Args:
        path: the ``.pt`` file.
        head: branch of a multi-task file, by name or alias, exactly or ignoring case; may
            be left out where there is only one branch or one named ``Default``.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be opened.
        ValueError: it is not a training checkpoint, or has no such branch.
    """
    path = Path(path).resolve()
    content = _load(path)
    own_format = _is_own_format(content, path)
    state, params = _state_and_params(content, path)
    branches = _branches(params, path)
    name = _select_branch(branches, head, path)
    tensors = _tensors_of_branch(state, name, branches, path)
    _check_options(branches[name], path)
    tensors = fold_adapters(tensors, str(path))
    return Checkpoint(path, name, tuple(branches), branches[name], tensors, own_format)


def _load(path: Path) -> Any:
    if not path.exists():
        raise FileNotFoundError(f"there is no model file {path}")
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise ValueError(f"{path} is {kind}; give a checkpoint file (.pt)")
    reason = why_not_pytorch(path)
    if reason:
        raise ValueError(f"{path} {reason}")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = _why_refused(str(error))
    except Exception:  # damaged bytes make the reader fail in any way
        reason = "it is damaged; copy or download it again"
    # Raised out here: PyTorch's own error advises to load the file without protection.
    raise ValueError(f"{path} is not a complete PyTorch file of plain data: {reason}")


def _why_refused(error: str) -> str:
    """Name what the file would import or run; PyTorch's reader stops before it."""
    found = re.search(r"(?:GLOBAL|function|class) ([\w.]+)", error)
    if found is None:
        return "it is damaged; copy or download it again"
    return (
        f"it would import {found[1]}, so it was not opened and nothing in it was run; "
        "give a DeePMD-kit training checkpoint (.pt)"
    )


def _is_own_format(content: Any, path: Path) -> bool:
    if not isinstance(content, dict) or FORMAT_KEY not in content:
        return False
    stored = content[FORMAT_KEY]
    if type(stored) is int and stored == FORMAT:
        return True
    raise ValueError(
        f"{path} has the format {str(stored)[:20]!r} of this package, but this version "
        f"reads only {FORMAT}; update dp-calc, or compress the model again"
    )


def _state_and_params(content: Any, path: Path) -> tuple[dict[str, Tensor], dict]:
    """State dict of the training wrapper and the model options in it."""
    state = content.get("model", content) if isinstance(content, dict) else None
    extra = state.get("_extra_state") if isinstance(state, dict) else None
    params = extra.get("model_params") if isinstance(extra, dict) else None
    if not isinstance(params, dict):
        raise ValueError(
            f"{path} is a PyTorch file but not a DeePMD-kit training checkpoint: it "
            "holds no model options"
        )
    tensors = {
        k: v for k, v in state.items() if isinstance(k, str) and isinstance(v, Tensor)
    }
    if any(_EXPORTABLE_DIALECT.search(k) for k in tensors):
        raise ValueError(
            f"{path} was written by the exportable PyTorch backend (pt_expt), whose "
            "checkpoints cannot be read here; give one of the PyTorch backend (pt)"
        )
    return tensors, params


def _branches(params: dict[str, Any], path: Path) -> dict[str, dict]:
    """Model options by the name of the branch."""
    branches = params.get("model_dict", {"Default": params})
    if not isinstance(branches, dict) or not branches:
        raise ValueError(f"{path} is damaged: its model_dict names no model")
    for name, options in branches.items():
        if not isinstance(name, str) or not isinstance(options, dict):
            raise ValueError(f"{path} is damaged: branch {name!r} has no model options")
    return branches


def _select_branch(branches: dict[str, dict], head: str | None, path: Path) -> str:
    if head is not None and not isinstance(head, str):
        raise ValueError(f"head must be the name of a branch, not {head!r}")
    names = _names_and_aliases(branches, path)
    listed = ", ".join(sorted(names))
    if head is None:
        if "Default" in names:
            return names["Default"]
        if len(branches) == 1:
            return next(iter(branches))
        raise SeveralHeadsError(
            f"{path} holds several heads; choose one with head=...: {listed}", names
        )
    if head in names:
        return names[head]
    found = {target for name, target in names.items() if name.lower() == head.lower()}
    if len(found) > 1:
        raise ValueError(
            f"{path} has several heads that are {head!r} but for capitals; write one as "
            f"it stands: {listed}"
        )
    if not found:
        raise ValueError(f"{path} has no head {head!r}; its heads are: {listed}")
    return found.pop()


def _names_and_aliases(branches: dict[str, dict], path: Path) -> dict[str, str]:
    """Branch of each name and alias; a name that stands for two is an error."""
    names = {name: name for name in branches}
    for name, params in branches.items():
        aliases = params.get("model_branch_alias")
        if not isinstance(aliases, list | tuple | None):
            raise ValueError(f"{path} is damaged: the aliases of {name} are no list")
        for alias in aliases or ():
            if names.setdefault(str(alias), name) != name:
                raise ValueError(
                    f"{path} is ambiguous: {alias!r} stands for the heads "
                    f"{names[str(alias)]} and {name}"
                )
    return names


def _tensors_of_branch(
    state: dict[str, Tensor], name: str, branches: dict[str, dict], path: Path
) -> dict[str, Tensor]:
    prefix = f"model.{name}."
    # The name of a branch may begin like that of another, with a dot after it.
    others = tuple(
        f"model.{b}." for b in branches if b != name and f"model.{b}.".startswith(prefix)
    )
    tensors = {
        k.removeprefix(prefix): v
        for k, v in state.items()
        if k.startswith(prefix) and not k.startswith(others)
    }
    if not tensors:
        raise ValueError(
            f"{path} holds no tensor named {prefix}*: it is damaged or foreign"
        )
    return tensors


def _check_options(params: dict[str, Any], path: Path) -> None:
    """Refuse options without which no model of any kind can be told or built."""
    type_map = params.get("type_map")
    if not isinstance(type_map, list) or not type_map:
        raise ValueError(f"{path} is damaged: it lists no elements (type_map)")
    if not all(isinstance(name, str) for name in type_map):
        raise ValueError(f"{path} is damaged: its type_map holds more than names")
    twice = sorted(name for name, count in Counter(type_map).items() if count > 1)
    if twice:
        raise ValueError(
            f"{path} is ambiguous: its type_map lists {', '.join(twice)} more than once"
        )
    for section in ("descriptor", "fitting_net", "info", "spin", "lora"):
        if not isinstance(params.get(section), dict | None):
            raise ValueError(
                f"{path} is damaged: its options have {params[section]!r} in the place "
                f"of the section {section}"
            )
