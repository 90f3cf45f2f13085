"""Tables in the place of embedding nets, as the settings ask."""

from .models import DPA4Model, Potential
from .models.classic.compress import compress, is_compressed, with_kernels
from .settings import Settings

__all__ = ["with_tables"]


def with_tables(model: Potential, settings: Settings) -> Potential:
    """Compress a model, or say how the tables of a compressed one are evaluated.

    Args:
        model: any model; it is left as it is.
        settings: ``compress``, ``stride``, ``extrapolate`` and ``kernels``.

    Returns:
        The model itself if there is nothing to do, else a new one.

    Raises:
        ValueError: the model cannot be compressed, or has no tables for the kernels that
            are asked for; the message says why.
    """
    if settings.compress:
        model = compress(
            model, settings.stride, settings.extrapolate, kernels=settings.kernels
        )
    elif settings.kernels != "auto" and is_compressed(model):
        model = with_kernels(model, settings.kernels)
    if settings.kernels == "triton" and not isinstance(model, DPA4Model):
        _refuse_without_kernels(model)
    return model


def _refuse_without_kernels(model: Potential) -> None:
    use = 'use kernels="auto" or "torch"'
    if not is_compressed(model):
        kind = getattr(model, "architecture", type(model).__name__)
        raise ValueError(
            f'kernels="triton" cannot be had: Triton kernels exist for tables only, and '
            f"this {kind} model has none; {use}"
        )
    if model.device.type != "cuda":
        raise ValueError(
            f'kernels="triton" cannot be had: the model is on {model.device}, and the '
            f"kernels need a CUDA device; {use}"
        )
