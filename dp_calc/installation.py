"""What to say when something is missing that an installation brings."""

from importlib.util import find_spec

__all__ = ["InstallationError", "explain"]

_PYTORCH = "PyTorch is not installed; https://pytorch.org/get-started/locally/ says how"
_OTHER = '{0} is not installed, which dp_calc needs; "pip install {0}" brings it'
_CLONE = (
    "Python found dp_calc in a folder that was cloned and not installed; either work in "
    'another folder, or run "pip install -e ." in that one'
)


class InstallationError(ImportError):
    """Something that dp_calc needs is not installed; the message says what to do."""


def explain(error: ImportError) -> None:
    """Raise a better error if something is not installed, else nothing.

    Args:
        error: of an import within dp_calc.

    Raises:
        InstallationError: a sentence instead of it.
    """
    package = __name__.partition(".")[0]
    missing = (error.name or "").partition(".")[0]
    if find_spec(f"{package}.models") is None:
        sentence = _CLONE
    elif not isinstance(error, ModuleNotFoundError) or missing in ("", package):
        return
    elif missing == "torch":
        sentence = _PYTORCH
    else:
        sentence = _OTHER.format(missing)
    raise InstallationError(sentence, name=error.name) from error
