"""Models as in ``tests/data`` with other options, e.g. as wide as the kernels need."""

from copy import deepcopy
from typing import Any

import torch
from dp_calc.models import load_model
from dp_calc.models.dpa4.model import DPA4Model
from dp_calc.models.dpa4.model_options import plain_form, read_model
from reference import DATA
from torch import Tensor


def widened(name: str, **options: Any) -> DPA4Model:
    """A model of float64 numbers that float32 holds, with other descriptor options.

    Weights are drawn with mean and spread of those of the same name in the file, if any.

    Args:
        name: of the checkpoint in ``tests/data``.
        options: of the descriptor, as a checkpoint names them.
    """
    known = load_model(DATA / f"{name}.pt")
    params = deepcopy(plain_form(known.source.params))
    params["descriptor"].update(options)
    model = DPA4Model(read_model(params, known.version))
    stored = known.state_dict()
    generator = torch.Generator().manual_seed(5)
    drawn = {
        key: _drawn(stored.get(key), tensor.shape, generator)
        for key, tensor in model.state_dict().items()
    }
    model.load_state_dict(drawn, assign=True)
    return model.requires_grad_(False).double().eval()


def in_float32(model: DPA4Model) -> DPA4Model:
    """The same model in float32; biases of the energy stay in float64."""
    model = deepcopy(model)
    model.descriptor.float()
    model.fitting.float()
    return model


def _drawn(like: Tensor | None, shape: torch.Size, generator: torch.Generator) -> Tensor:
    if like is None:
        return torch.randn(shape, generator=generator) / shape[:-1].numel() ** 0.5
    if like.shape == shape:
        return like.clone()
    spread = like.std() * (like[..., 0].numel() / shape[:-1].numel()) ** 0.5
    return (torch.randn(shape, generator=generator) * spread + like.mean()).float()
