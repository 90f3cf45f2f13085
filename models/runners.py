"""How one piece of a streamed model is run: eagerly, or compiled once for its shape."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, fx

__all__ = ["CompiledRunner", "EagerRunner", "Runner"]

Piece = Callable[..., tuple[Tensor, ...]]


class Runner(Protocol):
    """Evaluates pieces; ``fixed`` are inputs that carry no derivative."""

    pads_chunks: bool

    def run(
        self, piece: Piece, fixed: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """``piece(*fixed, *inputs)`` without recording anything."""

    def differentiate(
        self,
        piece: Piece,
        fixed: Sequence[Tensor],
        inputs: Sequence[Tensor],
        grads: Sequence[Tensor],
    ) -> tuple[Tensor, ...]:
        """Run the piece again; gradients of ``sum(results * grads)`` for all inputs."""


class EagerRunner:
    """Runs pieces as they are written, on inputs of any size."""

    pads_chunks = False

    def run(self, piece: Piece, fixed, inputs) -> tuple[Tensor, ...]:
        """See ``Runner``."""
        with torch.no_grad():
            return piece(*fixed, *inputs)

    def differentiate(self, piece: Piece, fixed, inputs, grads) -> tuple[Tensor, ...]:
        """See ``Runner``."""
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in inputs]
            results = piece(*fixed, *leaves)
            return torch.autograd.grad(
                results, leaves, grads, allow_unused=True, materialize_grads=True
            )


class CompiledRunner:
    """Traces a piece on its first inputs and compiles it; sizes must not change.

    Weights are inputs of the compiled code, so pieces that differ in their weights only,
    such as the same part of two blocks, share it.
    """

    pads_chunks = True

    def __init__(self, options: dict | None = None):
        self.n_compiled = 0
        self._options = options or {}
        self._by_piece: dict[tuple, tuple[Callable, list[Tensor]]] = {}
        self._by_code: dict[tuple, Callable] = {}
        self._eager = EagerRunner()

    def run(self, piece: Piece, fixed, inputs) -> tuple[Tensor, ...]:
        """See ``Runner``."""
        arguments = [*fixed, *inputs]
        compiled, weights = self._compiled("run", piece, arguments, piece)
        return tuple(compiled([*arguments, *weights]))

    def differentiate(self, piece: Piece, fixed, inputs, grads) -> tuple[Tensor, ...]:
        """See ``Runner``."""
        n_fixed, n_inputs = len(fixed), len(inputs)

        def backward(*arguments: Tensor) -> tuple[Tensor, ...]:
            at = n_fixed + n_inputs
            inputs, grads = arguments[n_fixed:at], arguments[at:]
            return self._eager.differentiate(piece, arguments[:n_fixed], inputs, grads)

        arguments = [*fixed, *inputs, *grads]
        compiled, weights = self._compiled("differentiate", piece, arguments, backward)
        return tuple(compiled([*arguments, *weights]))

    def _compiled(
        self, kind: str, piece: Piece, arguments: list[Tensor], function: Piece
    ) -> tuple[Callable, list[Tensor]]:
        shapes = tuple((x.shape, x.dtype) for x in arguments)
        key = (kind, piece, shapes)
        if key not in self._by_piece:
            self._by_piece[key] = self._compile(function, arguments)
        return self._by_piece[key]

    def _compile(
        self, function: Piece, arguments: list[Tensor]
    ) -> tuple[Callable, list[Tensor]]:
        from torch._inductor.compile_fx import compile_fx
        from torch.fx.experimental.proxy_tensor import make_fx

        with torch.no_grad():
            module, weights = _lift_weights(make_fx(function)(*arguments))
            inputs = [*arguments, *weights]
            shapes = tuple((x.shape, x.dtype, x.stride()) for x in inputs)
            code = (module.code, shapes)
            if code not in self._by_code:
                self.n_compiled += 1
                compiled = compile_fx(module, inputs, config_patches=self._options)
                self._by_code[code] = _without_grad(compiled)
        return self._by_code[code], weights


def _without_grad(compiled: Callable) -> Callable[[list[Tensor]], Sequence[Tensor]]:
    def call(arguments: list[Tensor]) -> Sequence[Tensor]:
        with torch.no_grad():
            return compiled(*arguments)

    return call


def _lift_weights(module: fx.GraphModule) -> tuple[fx.GraphModule, list[Tensor]]:
    """Turn the tensors that a traced module holds into inputs after the others."""
    weights, placeholders = [], {}
    last = [n for n in module.graph.nodes if n.op == "placeholder"][-1]
    for node in list(module.graph.nodes):
        if node.op != "get_attr":
            continue
        tensor = getattr(module, node.target)
        if id(tensor) not in placeholders:
            with module.graph.inserting_after(last):
                last = module.graph.placeholder(f"weight_{len(weights)}")
            last.meta = dict(node.meta)
            placeholders[id(tensor)] = last
            weights.append(tensor.detach())
        node.replace_all_uses_with(placeholders[id(tensor)])
        module.graph.erase_node(node)
    module.recompile()
    return module, weights
