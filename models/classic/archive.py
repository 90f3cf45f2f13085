"""Compressed models in files.

A file is laid out like a training checkpoint: the options of the checkpoint that the
model was made from, and tensors, here under the names of this package's modules. An entry
of its own tells it apart. It holds tensors and plain data only.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from ...kernels import tabulate
from ..checkpoint import FORMAT, FORMAT_KEY
from .compress import TWO_SIDED, is_compressed
from .model import ClassicModel
from .tabulated import StoredGate, TabulatedEmbedding

__all__ = ["put_tables", "save_compressed"]


def save_compressed(model: nn.Module, path: str | Path) -> None:
    """Write a compressed model to a file that ``load_model`` reads.

    Tensors are written in the model's precision; one in float64 loses nothing. A reader
    who does not ask for a precision gets that of the original checkpoint.

    Args:
        model: what ``compress`` made of a model from ``load_model``.
        path: the file; one that is there is replaced.

    Raises:
        ValueError: the model is not compressed, or does not come from a file.
        OSError: the file cannot be written.
    """
    if not is_compressed(model):
        raise ValueError("only a compressed model can be written; call compress first")
    if not hasattr(model, "source"):
        raise ValueError(
            "a compressed model is written with the options of its checkpoint, so it "
            "must come from load_model"
        )
    head, params = model.source.head, model.source.params
    tensors = {f"model.{head}.{name}": x for name, x in _tensors(model).items()}
    options = {"model_params": {"model_dict": {head: params}}}
    content = {FORMAT_KEY: FORMAT, "model": {"_extra_state": options, **tensors}}
    # Given a path, PyTorch would put the name of the file into it.
    with open(path, "wb") as file:
        torch.save(content, file)


def put_tables(
    model: ClassicModel, tensors: dict[str, Tensor], source: str
) -> dict[str, Tensor]:
    """Replace the embedding nets of a model without storage by tables without storage.

    Args:
        model: built from the options in the file.
        tensors: those of the branch, under the names in the file.
        source: what to call the file in an error.

    Returns:
        The tensors that belong into the model, under the same names.

    Raises:
        ValueError: a table or its domain is missing, or they do not fit each other.
    """
    config = model.config.descriptor
    remaining = dict(tensors)
    two_sided = model.architecture in TWO_SIDED
    embeddings = model.descriptor.embeddings
    for number in embeddings:
        name = f"descriptor.embeddings.{number}"
        info = remaining.pop(f"{name}.info", None)
        table = remaining.get(f"{name}.table")
        domain = _domain(info, table, two_sided, f"{source}: {name}")
        empty = torch.empty(domain.rows, 6 * config.channels, device="meta")
        embeddings[number] = TabulatedEmbedding(empty, domain)
    if hasattr(model.descriptor, "gate"):
        second = 1 if config.type_one_side else config.ntypes
        shape = (config.ntypes, second, config.channels)
        model.descriptor.gate = StoredGate(torch.empty(shape, device="meta"))
    return remaining


def _tensors(model: ClassicModel) -> dict[str, Tensor]:
    """Everything that determines the energy, on the CPU."""
    tensors = {k: v.detach().cpu() for k, v in model.state_dict().items()}
    for number, embedding in model.descriptor.embeddings.items():
        tensors[f"descriptor.embeddings.{number}.info"] = embedding.domain.info()
    distance = -1.0 if model.min_nbor_dist is None else model.min_nbor_dist
    tensors["min_nbor_dist"] = torch.tensor(distance, dtype=torch.float64)
    return tensors


def _domain(
    info: Tensor | None, table: Tensor | None, two_sided: bool, name: str
) -> tabulate.Domain:
    if info is None or table is None or info.shape != (6,) or table.ndim != 2:
        raise ValueError(f"{name} has no table and domain; the file is damaged")
    try:
        return tabulate.Domain.from_info(info, two_sided, len(table))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is damaged: {error}") from None
