"""What a file is, by its first bytes, before anything in it is read."""

import zipfile
from pathlib import Path

__all__ = ["why_not_pytorch"]

_BY_SUFFIX = {
    ".pth": "a TorchScript archive",
    ".pt2": "a compiled package bound to one device and one torch version",
    ".pte": "an exported program",
    ".pb": "a TensorFlow graph",
    ".jlo": "a JAX model",
    ".pd": "a Paddle model",
    ".dp": "a backend-neutral archive",
    ".yaml": "a backend-neutral archive",
    ".yml": "a backend-neutral archive",
    ".json": "an input file or a Paddle model",
}

# Of a zip archive: part of a member's name, and what has such members.
_BY_MEMBER = (
    ("aotinductor/", "a compiled package bound to one device and one torch version"),
    ("archive_format", "an exported program"),
    ("constants.pkl", "a TorchScript archive"),
)

_BY_START = (
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, perhaps a backend-neutral archive"),
    (b"\x93NUMPY", "a NumPy array"),
)

_TRAINED = "give the training checkpoint (.pt) that it was made from"
_FOREIGN = "give a DeePMD-kit training checkpoint (.pt)"

# PyTorch writes protocol 2; only that can be read without running what is in it.
_PICKLE = b"\x80\x02"
_NEWER_PICKLE = (
    "is a pickle of a protocol that PyTorch's checkpoints do not have; nothing in it was "
    f"run; {_FOREIGN}"
)


def why_not_pytorch(path: Path) -> str | None:
    """Say what a file is that is no PyTorch file, and what to do.

    Args:
        path: an existing file.

    Returns:
        The end of a sentence that begins with the path, or None if the file starts like
        a PyTorch file, whole or not.

    Raises:
        OSError: it cannot be opened.
    """
    with path.open("rb") as file:
        start = file.read(4096)
    if start[:4] == b"PK\x03\x04":
        return _why_not_this_zip(path)
    if start[:1] == _PICKLE[:1]:  # of this protocol, before PyTorch 1.6
        return None if start[:2] == _PICKLE else _NEWER_PICKLE
    kind = _BY_SUFFIX.get(path.suffix.lower())
    if kind is not None:
        return f"is {kind}, which cannot be read here; {_TRAINED}"
    return _why_not(start)


def _why_not_this_zip(path: Path) -> str | None:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
            damaged = [m.filename for m in archive.infolist() if _is_damaged(archive, m)]
            protocols = {
                archive.open(m).read(2) for m in members if m.endswith("data.pkl")
            }
    except (zipfile.BadZipFile, OSError):
        return (
            "is not a complete PyTorch file: its end is missing; copy or download it "
            "again"
        )
    if damaged:
        return (
            f"is damaged: {damaged[0]} was changed on the way; copy or download it again"
        )
    for part, kind in _BY_MEMBER:
        if any(part in member for member in members):
            return f"is {kind}, which cannot be read here; {_TRAINED}"
    if any(member.endswith(".npy") for member in members):
        return f"is an archive of NumPy arrays; {_FOREIGN}"
    if not protocols:
        return f"is a zip archive that PyTorch did not write; {_FOREIGN}"
    return None if protocols == {_PICKLE} else _NEWER_PICKLE


def _is_damaged(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bool:
    """Compare the checksum of a member, which PyTorch's own reader does not."""
    if member.CRC == 0:  # written without one
        return False
    try:
        with archive.open(member) as file:
            while file.read(1 << 20):
                pass
    except Exception:  # damaged headers make the reader fail in any way
        return True
    return False


def _why_not(start: bytes) -> str:
    if not start:
        return "is empty; copy or download it again"
    for magic, kind in _BY_START:
        if start.startswith(magic):
            return f"is {kind}; {_FOREIGN}"
    if start[8:10] == b'{"' and start[4:8] == bytes(4):
        return f"is a safetensors file, which holds no model options; {_FOREIGN}"
    return _why_not_text(start)


def _why_not_text(start: bytes) -> str:
    try:
        text = start.decode(errors="strict" if len(start) < 4096 else "ignore")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f"is of a format that is not known here; {_FOREIGN}"
    if text.lstrip()[:5].lower() in ("<html", "<!doc"):
        return "is a web page, so a download went wrong; download the file itself"
    if text.startswith("version https://git-lfs"):
        return "is a Git LFS pointer instead of the file itself; run git lfs pull"
    return f"is a text file instead of a PyTorch file; {_FOREIGN}"
