"""Released models by name: found, fetched from a stand-in hub, and checked.

The stand-in runs on the loopback; nothing here reaches a network.
"""

import hashlib
import http.server
import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from checkpoints import Content
from dp_calc.models import hub, load_model
from reference import DATA

NAME = "DPA4-Tiny-Test-v20260101"
CONTENT = (DATA / "zero_block.pt").read_bytes()
SHA256 = hashlib.sha256(CONTENT).hexdigest()
URL = f"/deepmodelingcommunity/DPA4-OMat24/resolve/main/{NAME}.pt"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home, without a network, in which ``NAME`` is the only released model."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(hub, "_RELEASES", ((NAME, SHA256, 123),))
    return tmp_path


@pytest.fixture
def library(home, monkeypatch):
    """The client library, with everything that it keeps inside the empty home."""
    name = "huggingface_hub"
    pytest.importorskip(name, reason="install the extra: pip install dp-calc[hub]")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hf"))
    return sys.modules[name]


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves one file with the headers of the real hub; notes what was asked."""

    content = CONTENT
    cut_at = None
    asked: list = []  # noqa: RUF012 (replaced for every test)

    def do_HEAD(self):
        self.asked.append((self.command, self.path, self.headers.get("Authorization")))
        if self.path.split("?")[0] != URL:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.send_header("ETag", '"abc"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()

    def do_GET(self):
        self.do_HEAD()
        if self.path.split("?")[0] == URL:
            self.wfile.write(self.content[: self.cut_at])

    def log_message(self, *_):
        pass


@pytest.fixture
def serve(library, monkeypatch):
    """Start the stand-in hub; settings of ``Hub`` are arguments."""
    servers = []

    def start(**settings):
        handler = type("Handler", (Hub,), {"asked": [], **settings})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        return handler

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def own_folder(home):
    return home / ".cache" / "dp_calc" / "models"


def put(folder, content=CONTENT):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}.pt"
    path.write_bytes(content)
    return path


def files_under(folder):
    return [p for p in folder.rglob("*") if p.is_file()] if folder.exists() else []


def test_a_file_comes_before_a_name(home, monkeypatch):
    monkeypatch.chdir(home)
    Path(NAME).write_bytes(b"mine")
    assert hub.resolve(NAME) == Path(NAME)
    assert hub.resolve(DATA / "plain.pt") == DATA / "plain.pt"
    put(home)
    assert hub.resolve(f"~/{NAME}.pt") == home / f"{NAME}.pt"


@pytest.mark.parametrize("name", [NAME, NAME.lower(), NAME.upper(), Path(NAME)])
@pytest.mark.parametrize("folder", ["dp_calc/models", "deepmd/pretrained/models"])
def test_a_file_on_this_machine_is_found(home, folder, name):
    path = put(home / ".cache" / folder)
    assert hub.resolve(name) == path
    assert load_model(name).source.path == path


def test_the_own_folder_follows_the_environment(home, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "elsewhere"))
    path = put(home / "elsewhere" / "dp_calc" / "models")
    put(home / ".cache" / "deepmd" / "pretrained" / "models")
    assert hub.resolve(NAME) == path


def test_files_with_another_checksum_are_passed_over(home):
    put(own_folder(home), CONTENT[:-1])
    path = put(home / ".cache" / "deepmd" / "pretrained" / "models")
    assert hub.resolve(NAME) == path


def test_what_is_released_and_present_is_listed(home):
    (listed,) = hub.released_models()
    assert listed == hub.ReleasedModel(NAME, SHA256, 123, None)
    path = put(own_folder(home))
    assert hub.released_models()[0].path == path
    path.write_bytes(b"partial")
    assert hub.released_models()[0].path is None


def test_five_models_are_released(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    listed = hub.released_models()
    sizes = [m.name.split("-")[1] for m in listed]
    assert sizes == ["Nano", "Mini", "Neo", "Air", "Plus"]
    assert all(len(bytes.fromhex(m.sha256)) == 32 and m.path is None for m in listed)


def test_an_unknown_name_lists_the_known_ones(home):
    for unknown in ("DPA4-Giant", "dpa4"):
        with pytest.raises(
            FileNotFoundError, match=f"{unknown}; released models: {NAME}"
        ):
            hub.resolve(unknown)
    for path in (f"{NAME}.pt", f"folder/{NAME}", "model.pt"):
        with pytest.raises(FileNotFoundError, match=f"no model file .*{path}$"):
            hub.resolve(path)


def test_fetched_once_and_kept(home, serve):
    handler = serve()
    assert load_model(NAME.lower()).source.path == own_folder(home) / f"{NAME}.pt"
    assert files_under(own_folder(home)) == [own_folder(home) / f"{NAME}.pt"]
    assert ("GET", URL, None) in handler.asked
    handler.asked.clear()
    assert hub.resolve(NAME).read_bytes() == CONTENT
    assert not handler.asked


def test_a_damaged_file_is_fetched_anew(home, serve):
    serve()
    put(own_folder(home), CONTENT[:1000])
    assert hub.resolve(NAME).read_bytes() == CONTENT


def test_no_credentials_are_sent(home, serve, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    handler = serve()
    hub.resolve(NAME)
    assert handler.asked
    assert all(authorization is None for *_, authorization in handler.asked)


def test_a_progress_bar_is_shown_on_a_terminal(home, serve, monkeypatch):
    serve()
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    hub.resolve(NAME)
    assert "100%" in terminal.getvalue()


def test_another_file_than_the_released_one_is_not_used(home, serve, tmp_path):
    other = Content("plain").save(tmp_path / "other.pt").read_bytes()
    serve(content=other)
    with pytest.raises(ValueError, match="has another checksum than the released file"):
        load_model(NAME)
    assert not files_under(own_folder(home))


def test_a_download_that_breaks_off_leaves_nothing(home, serve):
    serve(cut_at=5000)
    with pytest.raises(FileNotFoundError, match="the download failed"):
        load_model(NAME)
    assert not files_under(own_folder(home))


def both_ways(home):
    return (
        r"is not on this machine \(.*\); either install dp-calc\[hub\] and be online, or "
        rf"put the file of https://huggingface.co{URL} into {own_folder(home)}$"
    )


def test_a_hub_without_the_file(home, serve, monkeypatch):
    serve()
    monkeypatch.setattr(hub, "_REPOSITORY", "nobody/nothing")
    with pytest.raises(FileNotFoundError, match="the download failed: ") as caught:
        hub.resolve(NAME)
    assert "\n" not in str(caught.value)


def test_without_a_network_both_ways_are_told(home, library):
    with pytest.raises(FileNotFoundError, match=both_ways(home)) as caught:
        hub.resolve(NAME)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_without_the_library_both_ways_are_told(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(FileNotFoundError, match=both_ways(home)) as caught:
        hub.resolve(NAME)
    assert "huggingface_hub is not installed" in str(caught.value)
    assert not own_folder(home).exists()


def test_the_library_is_not_imported_for_files(tmp_path):
    path = Content().save(tmp_path / "model.pt")
    code = (
        "import sys; from dp_calc.models import load_model; load_model(sys.argv[1]);"
        "print('huggingface_hub' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"


def test_loading_by_name_changes_no_state(home):
    put(own_folder(home))
    before = (torch.get_default_dtype(), torch.get_rng_state(), dict(os.environ))
    load_model(NAME)
    assert torch.get_default_dtype() == before[0]
    assert (torch.get_rng_state() == before[1]).all()
    assert dict(os.environ) == before[2]
