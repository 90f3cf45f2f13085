"""Pieces of a model as compiled code, made once for each size and kept on disk."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from types import MethodType
from typing import cast

import torch
from torch import Tensor, fx, nn

from .arithmetic import rounded_products
from .compile_cache import CompileCache
from .models.pieces import EagerRunner, EdgePiece, Piece
from .tracing import trace

__all__ = ["CompileError", "CompiledRunner"]

_log = logging.getLogger(__name__)

_AGREEMENT = 256
"""Largest difference from eager results, in units of the machine precision times their
largest entry plus their change when every input changes by as much."""


class CompileError(RuntimeError):
    """There is no compiled code, or it gives other numbers than the code uncompiled."""


Compiled = Callable[[list[Tensor]], Sequence[Tensor]]


class CompiledRunner:
    """Compiles each piece on its first inputs; see ``Runner``.

    At first use the results are compared with those of the uncompiled piece.

    Args:
        cache: where compiled code is kept between processes.
        model: whose pieces these are.

    Attributes:
        n_compiled: pieces of code that were compiled.
        n_loaded: pieces that were found in the cache.
    """

    def __init__(self, cache: CompileCache, model: nn.Module):
        self.n_compiled = 0
        self.n_loaded = 0
        self._cache = cache
        self._names = {id(module): name for name, module in model.named_modules()}
        self._ready: dict[tuple, tuple[Compiled, list[Tensor]]] = {}
        self._by_code: dict[str, Compiled] = {}
        self._eager = EagerRunner()

    def run(self, piece: Piece, fixed, inputs) -> Sequence[Tensor]:
        """See ``Runner``."""

        def forward(*arguments: Tensor) -> Sequence[Tensor]:
            return self._eager.run(piece, (), arguments)

        return self._call("run", piece, [*fixed, *inputs], forward)

    def differentiate(
        self, piece: Piece, fixed, inputs, grads, wanted
    ) -> Sequence[Tensor]:
        """See ``Runner``."""
        start, end = len(fixed), len(fixed) + len(inputs)

        def backward(*arguments: Tensor) -> Sequence[Tensor]:
            fixed, inputs = arguments[:start], arguments[start:end]
            rest = (arguments[end:], wanted)
            return self._eager.differentiate(piece, fixed, inputs, *rest)

        kind = "differentiate " + "".join(str(int(w)) for w in wanted)
        return self._call(kind, piece, [*fixed, *inputs, *grads], backward)

    def _call(
        self, kind: str, piece: Piece, arguments: list[Tensor], function: Piece
    ) -> Sequence[Tensor]:
        key = (kind, piece, tuple(x.shape for x in arguments))
        if key not in self._ready:
            self._ready[key] = self._prepare(key, function, arguments)
            try:
                # Products rounded more coarsely would hide what is wrong.
                with rounded_products(arguments[0].device, "ieee"):
                    self._check(key, function, arguments)
            except CompileError:
                del self._ready[key]
                raise
        compiled, constants = self._ready[key]
        return compiled([*arguments, *constants])

    def _prepare(self, key: tuple, function: Piece, arguments: list[Tensor]):
        """Compiled code for a piece and its constants, from the disk or made now."""
        kind, piece, shapes = key
        name = f"{kind} {self._name(piece)} {[tuple(s) for s in shapes]}"
        found = self._cache.load(name, self._by_code, arguments[0].device)
        if found is not None:
            self.n_loaded += 1
            return found
        arguments = [x.detach().clone() for x in arguments]
        traced = trace(function, arguments)
        inputs = [*arguments, *traced.constants]
        layouts = [(tuple(x.shape), x.dtype, x.stride()) for x in inputs]
        code = hashlib.sha256(f"{traced.module.code}{layouts}".encode()).hexdigest()
        if code not in self._by_code:
            self._by_code[code] = self._compile(name, code, traced.module, inputs)
        self._cache.store(name, code, traced.constants)
        return self._by_code[code], traced.constants

    def _compile(self, name: str, code: str, module: fx.GraphModule, inputs) -> Compiled:
        self.n_compiled += 1
        if self.n_compiled == 1:
            _log.info("compiling the model, which takes a minute or so")
        try:
            return self._cache.compile(code, module, inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            what = str(error).strip().splitlines() or [type(error).__name__]
            raise CompileError(
                f"the model cannot be compiled here ({what[0]}); give compile=False for "
                "the same numbers without compiling"
            ) from error

    def _check(self, key: tuple, function: Piece, arguments: list[Tensor]) -> None:
        """Compare with uncompiled results."""
        compiled, constants = self._ready[key]
        expected = function(*arguments)
        moved = function(*[_nudged(x) for x in arguments])
        results = compiled([*arguments, *constants])
        for result, right, other in zip(results, expected, moved, strict=True):
            if not right.numel():
                continue
            noise = torch.finfo(right.dtype).eps * right.abs().max()
            allowed = _AGREEMENT * (noise + (other - right).abs().max())
            difference = (result - right).abs().max()
            if not difference <= allowed:
                raise CompileError(
                    f"compiled code for {self._name(key[1])} ({key[0]}) is off by "
                    f"{float(difference):.2g} where rounding explains "
                    f"{float(allowed):.2g}, so it is not used; compile=False avoids this"
                )

    def _name(self, piece: Piece) -> str:
        if isinstance(piece, EdgePiece):
            gate = " gated" if piece.gated else ""
            return f"{self._name(piece.function)} {piece.n_src}{gate}"
        if isinstance(piece, nn.Module):
            return self._names[id(piece)]
        method = cast(MethodType, piece)
        return f"{self._names[id(method.__self__)]}.{method.__name__}"


def _nudged(x: Tensor) -> Tensor:
    """Floating-point numbers changed by up to their rounding, others as they are."""
    if not x.is_floating_point():
        return x
    pattern = torch.arange(x.numel(), device=x.device, dtype=x.dtype).sin()
    return x * (1 + torch.finfo(x.dtype).eps * pattern.reshape(x.shape))
