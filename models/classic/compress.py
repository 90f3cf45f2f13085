"""Compression: the embedding nets of a model replaced by tables."""

import copy
from typing import TypeGuard

import torch
from torch import nn

from ...kernels import tabulate
from .environment import switch
from .model import ClassicModel
from .networks import EmbeddingNet
from .tabulated import StoredGate, TabulatedEmbedding

__all__ = ["TWO_SIDED", "compress", "is_compressed", "with_kernels"]

TWO_SIDED = ("se_e3", "se_e3_tebd")
"""Kinds whose embedding nets take inner products, which may be negative."""


def compress(
    model: nn.Module,
    stride: float = 0.01,
    extrapolate: float = 5.0,
    coarse_stride: float | None = None,
    min_nbor_dist: float | None = None,
    kernels: str = "auto",
) -> ClassicModel:
    """Replace the embedding nets of a classic model by tables.

    The fine rows of a table cover the arguments that atoms at least ``min_nbor_dist``
    apart can produce; the coarse rows continue it. Tables are worked out in float64 and
    rounded once to the model's precision.

    Args:
        model: a classic model; it is left as it is.
        stride: width of a fine row. For the descriptors of angles (se_e3, se_e3_tebd),
            both strides are ten times what is given.
        extrapolate: the coarse rows end at this multiple of the fine region's upper edge.
        coarse_stride: width of a coarse row; ten times ``stride`` if None.
        min_nbor_dist: shortest distance between two atoms in Å; that of the training data
            if None.
        kernels: operators that evaluate the tables: "auto", "torch" or "triton".

    Returns:
        A new model. Its derivatives of every order are those of the tables.

    Raises:
        ValueError: the model has nothing to tabulate, the shortest distance is not known,
            or the strides do not divide the range.
    """
    _check(model)
    shortest = _shortest(model, min_nbor_dist)
    factor = 10 if model.architecture in TWO_SIDED else 1
    coarse_stride = 10 * stride if coarse_stride is None else coarse_stride
    compressed = copy.deepcopy(model)
    embeddings = compressed.descriptor.embeddings
    for number, net in embeddings.items():
        lower, upper = _argument_range(compressed, int(number), shortest)
        domain = tabulate.Domain(
            lower,
            upper,
            upper * extrapolate,
            stride * factor,
            coarse_stride * factor,
            two_sided=model.architecture in TWO_SIDED,
        )
        embeddings[number] = _tabulated(net, domain, kernels)
    if hasattr(compressed.descriptor, "gate"):
        compressed.descriptor.gate = _stored_gate(compressed.descriptor)
    return compressed


def is_compressed(model: nn.Module) -> TypeGuard[ClassicModel]:
    """Whether the embedding nets of a model have been replaced by tables."""
    return isinstance(model, ClassicModel) and any(
        isinstance(embedding, TabulatedEmbedding)
        for embedding in model.descriptor.embeddings.values()
    )


def with_kernels(model: ClassicModel, kernels: str) -> ClassicModel:
    """Copy of a compressed model whose tables are evaluated by other operators."""
    changed = copy.deepcopy(model)
    for embedding in changed.descriptor.embeddings.values():
        embedding.kernels = kernels
    return changed


def _check(model: nn.Module) -> None:
    if not isinstance(model, ClassicModel):
        raise ValueError(
            f"a {getattr(model, 'architecture', type(model).__name__)} model has no "
            "embedding nets that tables could replace; run it as it is"
        )
    if is_compressed(model):
        raise ValueError("the model is compressed already")
    nets = model.descriptor.embeddings.values()
    if not all(isinstance(net, EmbeddingNet) for net in nets):
        raise ValueError(
            "the embedding net of this model reads type vectors beside the distance "
            "(tebd_input_mode='concat'), so no table can replace it; run it as it is, or "
            "train with tebd_input_mode='strip'"
        )


def _shortest(model: ClassicModel, given: float | None) -> float:
    distance = model.min_nbor_dist if given is None else given
    if distance is None:
        raise ValueError(
            "the checkpoint does not state the shortest distance in its training data, "
            "which tells how far the tables must reach; give min_nbor_dist in Å "
            "(dp-calc compress --min-nbor-dist)"
        )
    if not 0 < distance < model.rcut:
        raise ValueError(
            f"min_nbor_dist must lie between 0 and the cutoff {model.rcut:g} Å, not "
            f"{distance!r}"
        )
    return float(distance)


def _argument_range(
    model: ClassicModel, number: int, shortest: float
) -> tuple[float, float]:
    """Whole numbers that enclose the arguments of a net at distances >= ``shortest``."""
    c, environment = model.config.descriptor, model.descriptor.environment
    mean, stddev = environment.mean.double(), environment.stddev.double()
    if model.architecture == "se_e2_a" and not c.type_one_side:
        centre = number % c.ntypes
        mean, stddev = mean[centre], stddev[centre]
    peak = switch(torch.tensor(shortest).double(), c.rcut_smth, c.rcut).item() / shortest
    if model.architecture in TWO_SIDED:
        return tabulate.two_sided_range(stddev, peak)
    return tabulate.one_sided_range(mean, stddev, peak)


def _tabulated(
    net: EmbeddingNet, domain: tabulate.Domain, kernels: str
) -> TabulatedEmbedding:
    weights = net.layers[0].matrix
    layers = copy.deepcopy(net.layers).to("cpu", torch.float64)
    # PyTorch differentiates silu twice in forward mode only where gradients are enabled.
    in_float64 = torch.enable_grad()(layers.forward)
    table, _ = tabulate.build_table(in_float64, domain, weights.dtype)
    return TabulatedEmbedding(table.to(weights.device), domain, kernels)


@torch.no_grad()
def _stored_gate(descriptor: nn.Module) -> StoredGate:
    return StoredGate(descriptor.gate(descriptor.type_embedding()))
