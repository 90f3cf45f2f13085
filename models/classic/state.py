"""From the tensor names of a checkpoint to the names of the model's parameters."""

import re

import torch
from torch import Tensor, nn

from ..errors import UnsupportedOptionError
from .config import DescriptorConfig

__all__ = ["load_state"]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

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
    renamed = {_rename(k): k for k in given}
    wanted = model.state_dict()
    unknown = sorted(renamed[k] for k in renamed.keys() - wanted.keys())
    missing = sorted(wanted.keys() - renamed.keys())
    if len(renamed) < len(given):
        raise ValueError(f"{source} is ambiguous: two of its tensors are one parameter")
    if unknown or missing:
        raise ValueError(
            f"{source} does not fit its own options:"
            + (f" it lacks {_listed(missing)}" if missing else "")
            + (" and" if missing and unknown else "")
            + (f" it holds {_listed(unknown)}, which nothing uses" if unknown else "")
        )
    n_slots = config.n_slots
    state = {n: _checked(given[old], old, n_slots, source) for n, old in renamed.items()}
    for new, tensor in state.items():
        if tensor.shape != wanted[new].shape:
            raise ValueError(
                f"{source}: tensor {renamed[new]} has shape {tuple(tensor.shape)}, its "
                f"options ask for {tuple(wanted[new].shape)}"
            )
    model.load_state_dict(state, assign=True)


def _needed(
    tensors: dict[str, Tensor], config: DescriptorConfig, source: str
) -> dict[str, Tensor]:
    """Tensors that determine the energy, each under one name."""
    needed = {}
    for name, tensor in tensors.items():
        _check_plain(tensor, name, source)
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


def _check_plain(tensor: Tensor, name: str, source: str) -> None:
    plain = tensor.layout == torch.strided and not tensor.is_meta
    if tensor.dtype not in _FLOATS or not plain:
        raise ValueError(
            f"{source}: tensor {name} holds no plain floating-point numbers but "
            f"{tensor.dtype}; the model is damaged"
        )


def _is_unused_net(name: str, config: DescriptorConfig) -> bool:
    """Whether a net of se_e3 belongs to a pair of types in the order that is not used."""
    match = _NET_NUMBER.match(name)
    if config.kind != "se_e3" or match is None:
        return False
    b, a = divmod(int(match[1]), config.ntypes)
    return a > b


def _rename(key: str) -> str:
    for pattern, replacement in _RENAMED:
        key, count = re.subn(pattern, replacement, key)
        if count:
            break
    return key


def _checked(tensor: Tensor, name: str, n_slots: int, source: str) -> Tensor:
    """The tensor, if finite; statistics without their axis of slots, all alike."""
    if not tensor.isfinite().all():
        raise ValueError(f"{source}: tensor {name} is not finite; the model is damaged")
    if not _STATISTICS.match(name):
        return tensor.detach()
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


def _listed(names: list[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
