"""ASE calculator for DPA4 interatomic potentials."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch import evaluate
    from .calculator import DP
    from .placement import load_model
    from .settings import Settings

    __version__: str

__all__ = ["DP", "Settings", "__version__", "evaluate", "load_model"]

_HOME = {
    "DP": ".calculator",
    "Settings": ".settings",
    "evaluate": ".batch",
    "load_model": ".placement",
}


def __getattr__(name: str) -> Any:
    # On first use only: looking at the package must not cost an import of torch.
    if name == "__version__":
        return import_module("importlib.metadata").version("dp-calc")
    if name in _HOME:
        try:
            return getattr(import_module(_HOME[name], __name__), name)
        except ImportError as error:
            import_module(".installation", __name__).explain(error)
            raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
