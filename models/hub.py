"""Released checkpoints by name: found on this machine, or fetched and checked."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ReleasedModel", "checksum", "released_models", "resolve"]

_REPOSITORY = "deepmodelingcommunity/DPA4-OMat24"

# Name, sha256 of the file, trained numbers. The last only informs.
_RELEASES = (
    ("DPA4-Nano-OMat24-v20260805",
     "ded047546c2b44a50e2c850680d77279e2bf3e107c10f1c2fe39a5c344e693f6", 480_268),
    ("DPA4-Mini-OMat24-v20260805",
     "13edeea63448c0f8a0b38e08fd8ba196fb1e2fad5f12486b1cd23320829da268", 655_084),
    ("DPA4-Neo-OMat24-v20260805",
     "fd7f34ae28f921201e4a0328ddf56179892752084f8363e7796038201471c989", 1_124_910),
    ("DPA4-Air-OMat24-v20260805",
     "7ac5fb696fc057229ceebc33f31f7a96b2f3616ac5b63a512acd1848f2d41a09", 5_148_101),
    ("DPA4-Plus-OMat24-v20260805",
     "6820a320dc241a4002e6c257ad21983950df178b1f80271a6e6af199adb18567", 8_848_710),
)  # fmt: skip


@dataclass(frozen=True)
class ReleasedModel:
    """A checkpoint that can be given by its name.

    Attributes:
        name: its name; the file is called ``NAME.pt``.
        sha256: checksum of the file.
        n_parameters: trained numbers in the model.
        path: the file on this machine, with the right checksum; None if it is not here.
    """

    name: str
    sha256: str
    n_parameters: int
    path: Path | None


def released_models() -> tuple[ReleasedModel, ...]:
    """Every released checkpoint, and where it is on this machine."""
    return tuple(
        ReleasedModel(name, sha256, n_parameters, _find(name, sha256))
        for name, sha256, n_parameters in _RELEASES
    )


def resolve(name_or_path: str | os.PathLike) -> Path:
    """Find a checkpoint.

    Args:
        name_or_path: a file, or the name of a released checkpoint, in capitals or not. A
            file comes first where there are both. A released checkpoint is taken from
            the folders in which DeePMD-kit or this package keep it, or fetched.

    Returns:
        An existing path.

    Raises:
        FileNotFoundError: there is neither such a file nor such a name, or it cannot be
            fetched from here.
        ValueError: the argument is no path, or what was fetched is not the released file.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise ValueError(f"a model is given by a path or a name, not by {name_or_path!r}")
    path = Path(os.path.expanduser(name_or_path))
    if path.exists():
        return path
    for name, sha256, _ in _RELEASES:
        if name.lower() == str(name_or_path).lower():
            return _find(name, sha256) or _fetch(name, sha256)
    named = ", ".join(name for name, *_ in _RELEASES)
    hint = "" if path.suffix or path.name != str(path) else f"; released models: {named}"
    raise FileNotFoundError(f"there is no model file {path.absolute()}{hint}")


def _folders() -> tuple[Path, Path]:
    """Own folder for models, then that of DeePMD-kit."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    deepmd = os.path.expanduser("~/.cache/deepmd/pretrained/models")
    return Path(cache) / "dp_calc" / "models", Path(deepmd)


def _find(name: str, sha256: str) -> Path | None:
    files = (folder / f"{name}.pt" for folder in _folders())
    return next((f for f in files if f.is_file() and checksum(f) == sha256), None)


def checksum(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _fetch(name: str, sha256: str) -> Path:
    """Download into this package's folder; only a checked file gets its final name."""
    folder = _folders()[0]
    try:
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    except ImportError:
        raise _not_here(name, "huggingface_hub is not installed") from None
    # The variable may have been set after the library read it.
    endpoint = os.environ.get("HF_ENDPOINT")
    where: dict[str, Any] = {"filename": f"{name}.pt", "endpoint": endpoint}
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as partial:
        try:
            # Without a network this fails at once, the download after half a minute.
            get_hf_file_metadata(hf_hub_url(_REPOSITORY, **where), token=False)
            fetched = hf_hub_download(
                _REPOSITORY, local_dir=partial, token=False, **where
            )
        except Exception as error:  # the library's own, its HTTP client's, the system's
            raise _not_here(name, f"the download failed: {_line(error)}") from None
        if checksum(Path(fetched)) != sha256:
            raise ValueError(
                f"what was downloaded as {name} has another checksum than the released "
                "file and was deleted; try again, or from another place (HF_ENDPOINT)"
            )
        return Path(fetched).replace(folder / f"{name}.pt")


def _line(error: Exception) -> str:
    text = str(error).strip().split("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {text}"[:200]


def _not_here(name: str, reason: str) -> FileNotFoundError:
    """The error of a known name without a file, with the two ways to get it."""
    return FileNotFoundError(
        f"{name} is not on this machine ({reason}); either install dp-calc[hub] and be "
        f"online, or put the file of https://huggingface.co/{_REPOSITORY}/resolve/main/"
        f"{name}.pt into {_folders()[0]}"
    )
