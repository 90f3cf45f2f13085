"""Compiled code on disk, so that only the first process ever waits for the compiler."""

import hashlib
import io
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from . import kernels, models

__all__ = ["CompileCache", "cache_folder", "clear_cache", "open_cache"]

_log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Where compiled code is kept: ``$DP_CACHE_DIR``, or ``dp_calc`` in ``~/.cache``."""
    chosen = os.environ.get("DP_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "dp_calc"


def clear_cache() -> None:
    """Delete compiled code, and nothing else that may be in the folder."""
    for name in ("pieces", "code", "inductor"):
        shutil.rmtree(cache_folder() / name, ignore_errors=True)


def open_cache(model: nn.Module) -> "CompileCache":
    """The cache for a model: one for each model, device, and version of what compiles."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        usable = os.access(folder, os.W_OK)
    except OSError:
        usable = False
    if not usable:
        _log.warning(
            "compiled code cannot be kept in %s; set DP_CACHE_DIR to a folder that can "
            "be written, or every process will compile anew",
            folder,
        )
    return CompileCache(_key(model), folder if usable else None)


def _key(model: nn.Module) -> str:
    """Everything that compiled code depends on, as text."""
    device = str(model.device.type)
    if model.device.type == "cuda":
        device = f"{torch.cuda.get_device_name(model.device)} {torch.version.cuda}"
    versions = [f"{name} {_version(name)}" for name in ("torch", "triton", "dp_calc")]
    return "\n".join([*versions, _digest_of_sources(), device, _digest_of_model(model)])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _digest_of_sources() -> str:
    """Of the code that is traced: it may change between versions."""
    digest = hashlib.sha256()
    for package in (models, kernels):
        for path in sorted(Path(package.__file__).parent.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _digest_of_model(model: nn.Module) -> str:
    options = getattr(model, "kernel_options", None)
    digest = hashlib.sha256(f"{model.config!r} {options!r}".encode())
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        numbers = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
        digest.update(numbers.numpy().tobytes())
    return digest.hexdigest()


class CompileCache:
    """Compiled code of one model on one kind of device.

    Args:
        key: what the code depends on, besides the code itself.
        folder: where the files are; None keeps nothing.
    """

    def __init__(self, key: str, folder: Path | None = None):
        self._key, self._folder = key, folder

    def load(self, name: str, by_code: dict, device: torch.device):
        """Code and constants stored under a name, or None; damaged files count as none.

        Args:
            name: of the piece with its sizes.
            by_code: code in memory; what is loaded is added to it.
            device: where the constants go.
        """
        path = self._piece(name)
        if path is None or not path.exists():
            return None
        try:
            return self._read(path, by_code, device)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a file cut short or altered fails in many ways
            _log.warning("compiled code in %s cannot be read: %s", self._folder, error)
            return None

    def _read(self, path: Path, by_code: dict, device: torch.device):
        entry = torch.load(path, map_location=device, weights_only=True)
        code = entry["code"]
        if code not in by_code:
            artifact = self._artifact(code)
            if not artifact.exists():
                return None
            with self._inductor_folder():
                loaded = torch._inductor.CompiledArtifact.load(path=str(artifact))
            by_code[code] = _without_grad(loaded)
        return by_code[code], entry["constants"]

    def compile(
        self, code: str, module: fx.GraphModule, inputs: list[Tensor]
    ) -> Callable[[list[Tensor]], Any]:
        """Compile a graph for these inputs and keep it under the hash of its code."""
        with self._inductor_folder(), torch.no_grad():
            compiled = torch._inductor.standalone_compile(
                module,
                inputs,
                dynamic_shapes="from_example_inputs",
                options={},
            )
            if self._folder is not None:
                compiled.save(path=str(self._artifact(code)))
        return _without_grad(compiled)

    def store(self, name: str, code: str, constants: list[Tensor]) -> None:
        """Keep the constants of a piece and the name of its code."""
        path = self._piece(name)
        if path is None:
            return
        buffer = io.BytesIO()
        constants = [x.cpu() for x in constants]  # keeps their strides
        torch.save({"code": code, "constants": constants}, buffer)
        _write(path, buffer.getvalue())

    def _piece(self, name: str) -> Path | None:
        if self._folder is None:
            return None
        digest = hashlib.sha256(f"{self._key}\n{name}".encode()).hexdigest()
        return self._folder / "pieces" / f"{digest}.pt"

    def _artifact(self, code: str) -> Path:
        digest = hashlib.sha256(f"{self._key}\n{code}".encode()).hexdigest()
        path = self._folder / "code" / f"{digest}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @contextmanager
    def _inductor_folder(self) -> Iterator[None]:
        """Let the compiler keep its own files in our folder, for this moment only."""
        name = "TORCHINDUCTOR_CACHE_DIR"
        before = os.environ.get(name)
        if self._folder is not None:
            os.environ[name] = str(self._folder / "inductor")
        try:
            yield
        finally:
            os.environ.pop(name, None)
            if before is not None:
                os.environ[name] = before


def _without_grad(compiled: Callable) -> Callable[[list[Tensor]], Any]:
    def call(arguments: list[Tensor]) -> Any:
        with torch.no_grad():
            return compiled(*arguments)

    return call


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, whoever else does the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
