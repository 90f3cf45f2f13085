"""The fold of the padding at the end of a sorted neighbour list."""

import torch
from torch import Tensor

__all__ = ["tail_fold"]


def tail_fold(x: Tensor, em: Tensor) -> Tensor:
    """Slot of each atom that stands for the rest of its neighbour list.

    It is the first slot whose argument equals that of the last slot exactly and whose
    direction (components 1 to 3 of ``em``) is zero. It is evaluated once, with a weight
    that counts it and all slots after it; these are left out. The weights are constants:
    all of the tail's gradient goes to the folded slot. The caller sees to it that the
    tail's slots are alike in every input.

    Args:
        x: spline arguments, (nloc, nnei).
        em: (nloc, nnei, M), M at least 4.

    Returns:
        (nloc,), int64; nnei where nothing is folded.
    """
    nloc, nnei = x.shape
    if nnei == 0:
        return torch.zeros(nloc, dtype=torch.int64, device=x.device)
    x, em = x.detach(), em.detach()
    alike = (x == x[:, -1:]) & (em[:, :, 1:4] == 0).all(-1)
    slot = torch.arange(nnei, device=x.device).expand(nloc, nnei)
    return slot.masked_fill(~alike, nnei).amin(1)
