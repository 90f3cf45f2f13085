"""Checkpoint files for tests: read one of ``tests/data``, change it, write it."""

from pathlib import Path
from typing import Any

import torch
from reference import DATA
from torch import Tensor

DESCRIPTOR = "model.Default.atomic_model.descriptor."
FITTING = "model.Default.atomic_model.fitting_net."


class Content:
    """What a checkpoint holds: options and tensors, both to be changed freely."""

    def __init__(self, name: str = "zero_block"):
        content = torch.load(DATA / f"{name}.pt", weights_only=True)
        self.state: dict[str, Any] = content["model"]
        self.params: dict[str, Any] = self.state["_extra_state"]["model_params"]

    def save(self, path: Path) -> Path:
        """Write it in the layout of a training checkpoint."""
        torch.save({"model": self.state}, path)
        return path

    def only_tensors(self) -> dict[str, Tensor]:
        """Tensors by their names."""
        return {k: v for k, v in self.state.items() if isinstance(v, Tensor)}

    def rename(self, before: str, after: str) -> None:
        """Change the beginning of every name that has it."""
        for key in [k for k in self.state if k.startswith(before)]:
            self.state[after + key.removeprefix(before)] = self.state.pop(key)


def multi_task(branches: dict[str, Content], **options: dict[str, Any]) -> Content:
    """One file of several branches; ``options`` are further ones of a branch by name."""
    result = Content()
    result.state.clear()
    for name, branch in branches.items():
        branch.params.update(options.get(name, {}))
        for key, tensor in branch.only_tensors().items():
            result.state[f"model.{name}." + key.removeprefix("model.Default.")] = tensor
    result.params = {
        "shared_dict": {},
        "model_dict": {name: branch.params for name, branch in branches.items()},
    }
    result.state["_extra_state"] = {"model_params": result.params}
    return result
