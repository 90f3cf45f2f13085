"""What operators of torch.library would lose without a word is refused here."""

from collections.abc import Iterable

from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

__all__ = ["has_tangent", "refuse_forward_mode", "refuse_weights"]


def has_tangent(tensor: Tensor) -> bool:
    """Whether derivatives in forward mode are asked for by a tensor."""
    return unpack_dual(tensor).tangent is not None


def refuse_forward_mode(*tensors: Tensor) -> None:
    """Raise where a tensor has a tangent, which the result would not have.

    Raises:
        RuntimeError: saying what to use.
    """
    if any(map(has_tangent, tensors)):
        raise RuntimeError(
            'the Triton kernels give no derivatives in forward mode; use kernels="torch"'
        )


def refuse_weights(ctx, places: Iterable[int]) -> None:
    """Raise in a backward where an input that counts as a weight wants a gradient.

    Args:
        ctx: of the operator.
        places: of these inputs.

    Raises:
        RuntimeError: saying what to use.
    """
    if any(ctx.needs_input_grad[i] for i in places):
        raise RuntimeError(
            'the Triton kernels give no gradients of weights; use kernels="torch"'
        )
