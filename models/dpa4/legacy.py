"""Tensors of older files, brought to the meaning that they have in the newest version."""

import torch
from torch import Tensor

__all__ = ["upgrade"]

_DESCRIPTOR = "atomic_model.descriptor."
_SPIN_SCALE = _DESCRIPTOR + "env_seed_embedding.spin_scale"

# Whatever leads from a spin to the energy.
_OUTPUTS_OF_SPIN = (
    _SPIN_SCALE,
    _DESCRIPTOR + "spin_embedding.mag_layer2.matrix",
    _DESCRIPTOR + "spin_embedding.adam_spin_vec_weight",
    _DESCRIPTOR + "spin_embedding.adam_spin_nbr_weight",
)


def upgrade(
    tensors: dict[str, Tensor], version: float, magnetic_types: tuple[bool, ...] | None
) -> dict[str, Tensor]:
    """Rewrite tensors that changed their meaning with version 1.2.

    Up to then the spin of an atom was scaled before its square was formed, since then the
    square is; and a model without a magnetic type kept values that had no effect. What
    distinguishes versions below 1.1 is in the model itself.

    Args:
        tensors: those of a branch by name.
        version: version of the descriptor's format.
        magnetic_types: types that carry a native spin; None for models without spins.

    Returns:
        The given dictionary, or a new one with rewritten tensors.
    """
    if magnetic_types is None or not 1.1 <= version < 1.2:
        return tensors
    if not any(magnetic_types):
        unused = {k: tensors[k] for k in _OUTPUTS_OF_SPIN if k in tensors}
        return {**tensors, **{k: torch.zeros_like(v) for k, v in unused.items()}}
    if _SPIN_SCALE not in tensors:
        return tensors
    scale = tensors[_SPIN_SCALE].to(torch.float64)
    return {**tensors, _SPIN_SCALE: scale.square()}
