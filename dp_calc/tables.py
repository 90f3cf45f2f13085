"""Tables in the place of embedding nets, as the settings ask."""

from torch import nn

from .models.classic.compress import compress, is_compressed, with_kernels
from .settings import Settings

__all__ = ["with_tables"]


def with_tables(model: nn.Module, settings: Settings) -> nn.Module:
    """Compress a model, or say how the tables of a compressed one are evaluated.

    Args:
        model: any model; it is left as it is.
        settings: ``compress``, ``stride``, ``extrapolate`` and ``kernels``.

    Returns:
        The model itself if there is nothing to do, else a new one.

    Raises:
        ValueError: the model cannot be compressed; the message says why.
    """
    if settings.compress:
        return compress(
            model, settings.stride, settings.extrapolate, kernels=settings.kernels
        )
    if settings.kernels != "auto" and is_compressed(model):
        return with_kernels(model, settings.kernels)
    return model
