"""Files of other kinds, damaged files, and files that would run code."""

import io
import json
import os
import pickle
import random
import zipfile
from pathlib import Path

import numpy as np
import torch
from checkpoints import Content
from hostile import case
from reference import DATA

# Files of other kinds.


@case("there is no model file", error=FileNotFoundError)
def nothing(path):
    pass


@case("is a folder")
def folder(path):
    path.mkdir()


@case("is empty")
def empty(path):
    path.touch()


@case("is a text file")
def text(path):
    path.write_text("model.ckpt-1000.pt\n")


@case("is a web page, so a download went wrong")
def web_page(path):
    path.write_text("<!DOCTYPE html>\n<html><body>404</body></html>")


@case("run git lfs pull")
def lfs_pointer(path):
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")


@case("an input file or a Paddle model", "input.json")
def training_input(path):
    path.write_text(json.dumps({"model": {"type": "dpa4"}}))


@case("is a backend-neutral archive", "model.yaml")
def archive_in_yaml(path):
    path.write_text("backend: PyTorch\nmodel: {}\n")


@case("is a backend-neutral archive", "model.dp")
def archive_in_hdf5(path):
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))


@case("is an HDF5 file, perhaps a backend-neutral archive")
def renamed_archive_in_hdf5(path):
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))


@case("is a TensorFlow graph", "graph.pb")
def tensorflow_graph(path):
    path.write_bytes(b"\n\x0f\n\x05t_box\x12\x06Placeholder" + bytes(9))


@case("is a NumPy array")
def numpy_array(path):
    with path.open("wb") as file:
        np.save(file, np.arange(9.0))


@case("is an archive of NumPy arrays")
def numpy_archive(path):
    with path.open("wb") as file:
        np.savez(file, energy=np.arange(9.0))


@case("is a safetensors file")
def safetensors(path):
    header = b'{"weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))


@case("is a zip archive that PyTorch did not write")
def zip_without_pickle(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")


@case("is of a format that is not known here")
def random_bytes(path):
    path.write_bytes(random.Random(3).randbytes(5000))


@case("is a TorchScript archive", "frozen.pth")
def torchscript(path):
    _torchscript(path)


@case("is a TorchScript archive")
def renamed_torchscript(path):
    _torchscript(path)


def _torchscript(path):
    with zipfile.ZipFile(path, "w") as archive:
        for member in ("data.pkl", "constants.pkl", "code/__torch__.py"):
            archive.writestr(f"frozen/{member}", b"")


@case("is a compiled package bound to one device", "frozen.pt2")
def compiled_package(path):
    _compiled(path)


@case("is a compiled package bound to one device")
def renamed_compiled_package(path):
    _compiled(path)


def _compiled(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/archive_format", "pt2")
        archive.writestr("m/data/aotinductor/model/kernel.cpp", "int main;")
        archive.writestr("m/extra/metadata.json", "{}")


@case("is an exported program")
def exported_program(path):
    with zipfile.ZipFile(path, "w") as archive:
        for member in ("models/model.json", "archive_format", "data/weights/weight_0"):
            archive.writestr(f"m/{member}", "")


# Damaged on the way.


@case("is not a complete PyTorch file: its end is missing")
def truncated(path):
    whole = (DATA / "zero_block.pt").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


@case("was changed on the way")
def flipped_byte(path):
    content = bytearray((DATA / "zero_block.pt").read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)


@case("it is damaged; copy or download it again")
def truncated_older_layout(path):
    buffer = io.BytesIO()
    torch.save(Content().state, buffer, _use_new_zipfile_serialization=False)
    path.write_bytes(buffer.getvalue()[:3000])


@case("it is damaged; copy or download it again")
def storage_missing(path):
    with (
        zipfile.ZipFile(DATA / "zero_block.pt") as whole,
        zipfile.ZipFile(path, "w") as part,
    ):
        for member in whole.namelist():
            if not member.endswith("data/3"):
                part.writestr(member, whole.read(member))


@case("it is damaged; copy or download it again")
def pickle_of_nonsense(path):
    path.write_bytes(b"\x80\x02" + random.Random(5).randbytes(300))


# More than plain data.


class Runs:
    """Runs a command when it is unpickled without protection."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@case("it would import posix.system, so it was not opened")
def pickle_that_runs_code(path):
    path.write_bytes(pickle.dumps(Runs(f"touch {path}.canary"), protocol=2))


@case("is a pickle of a protocol .* nothing in it was run")
def newer_pickle_that_runs_code(path):
    path.write_bytes(pickle.dumps(Runs(f"touch {path}.canary")))


@case("is a pickle of a protocol .* nothing in it was run")
def checkpoint_of_newer_protocol_that_runs_code(path):
    content = {"model": Content().state, "note": Runs(f"touch {path}.canary")}
    torch.save(content, path, pickle_protocol=4)


@case("it would import posix.system, so it was not opened")
def checkpoint_that_runs_code(path):
    torch.save({"model": Content().state, "note": Runs(f"touch {path}.canary")}, path)


@case("it would import posix.system, so it was not opened")
def checkpoint_of_older_layout_that_runs_code(path):
    content = {"model": Content().state, "note": Runs(f"touch {path}.canary")}
    torch.save(content, path, _use_new_zipfile_serialization=False)


@case("so it was not opened and nothing in it was run")
def whole_module(path):
    torch.save(torch.nn.Linear(2, 2), path)


@case("so it was not opened and nothing in it was run")
def object_among_the_options(path):
    content = Content()
    content.params["path"] = Path("somewhere")
    content.save(path)
