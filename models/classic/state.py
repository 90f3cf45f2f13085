"""From the tensor names of a checkpoint to the names of the model's parameters."""

import re
from functools import partial

import torch
from torch import Tensor, nn

from ..errors import UnsupportedOptionError
from ..state import assign_tensors, check_numbers, first_match
from .config import DescriptorConfig

__all__ = ["load_state"]

_DESCRIPTOR = r"^atomic_model\.descriptor\.(?:sea\.|seat\.|se_ttebd\.|se_atten\.)?"
_FITTING = r"^atomic_model\.fitting_net\."
_TABLE = re.compile(_DESCRIPTOR + r"(compress_(data|info)\.\d+|type_embd_data)$")
_STATISTICS = re.compile(_DESCRIPTOR + r"(mean|stddev)$")
_NET_NUMBER = re.compile(_DESCRIPTOR + r"filter_layers\.networks\.(\d+)\.")
# Statistics of training.
_NOT_NEEDED = ("min_nbor_dist", "atomic_model.out_std")

_RENAMED = [
    (r"^atomic_model\.out_bias$", "out_bias"),
    (_FITTING + "bias_atom_e$", "fitting_bias"),
    (_FITTING + r"filter_layers\.", "fitting."),
    (_FITTING, "fitting.inputs."),
    (_DESCRIPTOR + r"(mean|stddev)$", r"descriptor.environment.\1"),
    (_DESCRIPTOR + r"filter_layers\.networks\.", "descriptor.embeddings."),
    (_DESCRIPTOR + r"filter_layers_strip\.networks\.0\.", "descriptor.gate."),
    (_DESCRIPTOR + r"type_embedding\.embedding\.embedding_net\.layers\.0\.",
     "descriptor.type_embedding.layer."),
]  # fmt: skip


def load_state(
    model: nn.Module, config: DescriptorConfig, tensors: dict[str, Tensor], source: str
) -> None:
    """Give every parameter and stored buffer of ``model`` its tensor.

    Args:
        model: a model whose parameters have no storage yet.
        config: options of its descriptor.
        tensors: the branch's tensors by their names in the file.
        source: what to call the file in an error.

    Raises:
        UnsupportedOptionError: the file holds tables instead of embedding nets.
        ValueError: a tensor is missing, unknown, of another shape, or not finite.
    """
    given = _needed(tensors, config, source)
    given = {k: _without_slots(v, k, config.n_slots, source) for k, v in given.items()}
    assign_tensors(model, given, partial(first_match, rules=_RENAMED), source)


def _needed(
    tensors: dict[str, Tensor], config: DescriptorConfig, source: str
) -> dict[str, Tensor]:
    """Tensors that determine the energy, each under one name."""
    needed = {}
    for name, tensor in tensors.items():
        check_numbers(tensor, name, source)
        # Nets are stored twice, as "networks" and as "_networks".
        single = name.replace("._networks.", ".networks.")
        if single != name and single in tensors:
            if not torch.equal(tensor, tensors[single]):
                raise ValueError(f"{source}: tensors {name} and {single} differ")
        elif _TABLE.match(name):
            if tensor.numel():
                raise UnsupportedOptionError(
                    f"the checkpoint holds a compressed model ({name}); give the one "
                    "that it was made from and compress that"
                )
        elif name not in _NOT_NEEDED and not _is_unused_net(single, config):
            needed[single] = tensor
    return needed


def _is_unused_net(name: str, config: DescriptorConfig) -> bool:
    """Whether a net of se_e3 belongs to a pair of types in the order that is not used."""
    match = _NET_NUMBER.match(name)
    if config.kind != "se_e3" or match is None:
        return False
    b, a = divmod(int(match[1]), config.ntypes)
    return a > b


def _without_slots(tensor: Tensor, name: str, n_slots: int, source: str) -> Tensor:
    """Statistics without their axis of slots, which are all alike; others as they are."""
    if not _STATISTICS.match(name):
        return tensor
    if tensor.ndim != 3 or tensor.shape[1] != n_slots:
        raise ValueError(
            f"{source}: tensor {name} has shape {tuple(tensor.shape)}, its options ask "
            f"for {n_slots} neighbours (sel)"
        )
    if (tensor != tensor[:, :1]).any():
        raise ValueError(
            f"{source}: tensor {name} differs between neighbours of one atom; the model "
            "is damaged"
        )
    if name.endswith("stddev") and not (tensor > 0).all():
        raise ValueError(f"{source}: tensor {name} is not positive; the model is damaged")
    return tensor[:, 0].detach().clone()
