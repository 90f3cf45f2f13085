"""From a piece of a model to a graph of tensor operations without hidden tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, fx

__all__ = ["Trace", "trace"]

_SMALL_PRODUCT = 256  # multiplications in one matrix product of a batch


@dataclass(frozen=True)
class Trace:
    """A traced function.

    Attributes:
        module: takes the arguments, then the constants.
        constants: weights, and what was made of weights alone.
    """

    module: fx.GraphModule
    constants: list[Tensor]


def trace(function: Callable[..., Sequence[Tensor]], arguments: list[Tensor]) -> Trace:
    """Run a function once and record it for tensors of these sizes.

    What it makes of weights alone is done here once, and is a constant of the graph.
    Constants are inputs, so that pieces which differ in their weights only, such as the
    same part of two blocks, have the same graph.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    # The product of many tiny matrices is one element-wise kernel in compiled code, and
    # one slow launch of a batched product otherwise.
    table = {torch.ops.aten.bmm.default: _product}
    with torch.no_grad():
        module = make_fx(function, decomposition_table=table)(*arguments)
    # On one device: a graph with a copy from the host cannot be recorded.
    device = arguments[0].device
    constants = [x.to(device, copy=True) for x in _lift_constants(module)]
    # Without the tensors, which the compiler would take for further inputs.
    return Trace(fx.GraphModule({}, module.graph), constants)


def _product(left: Tensor, right: Tensor) -> Tensor:
    if left.shape[1] * left.shape[2] * right.shape[2] > _SMALL_PRODUCT:
        return NotImplemented
    return (left[:, :, :, None] * right[:, None]).sum(2)


def _lift_constants(module: fx.GraphModule) -> list[Tensor]:
    """Turn the tensors that a traced module holds into inputs after the others."""
    constants, placeholders = [], {}
    last = [n for n in module.graph.nodes if n.op == "placeholder"][-1]
    for node in list(module.graph.nodes):
        if node.op != "get_attr":
            continue
        tensor = getattr(module, node.target)
        if id(tensor) not in placeholders:
            with module.graph.inserting_after(last):
                last = module.graph.placeholder(f"constant_{len(constants)}")
            last.meta = dict(node.meta)
            placeholders[id(tensor)] = last
            constants.append(tensor.detach())
        node.replace_all_uses_with(placeholders[id(tensor)])
        module.graph.erase_node(node)
    return constants
