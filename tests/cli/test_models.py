import hashlib
import shutil

import pytest
from dp_calc.models import hub

from dp_calc import DP
from dp_calc.data import water_model

NAMES = [
    f"DPA4-{size}-OMat24-v20260805" for size in ("Nano", "Mini", "Neo", "Air", "Plus")
]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty home without a network."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path


@pytest.fixture
def released(monkeypatch):
    """The bundled model stands in for a released one."""
    sha256 = hashlib.sha256(water_model().read_bytes()).hexdigest()
    monkeypatch.setattr(hub, "_RELEASES", (("Water", sha256, 650_348),))


def test_names_and_sizes(dp_calc):
    status, out, err = dp_calc("models")
    assert (status, err) == (0, "")
    header, *rows = [line.split() for line in out.splitlines()]
    assert header[:3] == ["name", "parameters", "MB"]
    assert [row[0] for row in rows] == NAMES
    assert rows[2] == [NAMES[2], "1,124,910", "-", "-"]


def test_those_on_this_machine_are_shown_and_used(dp_calc, home, released):
    assert dp_calc("models")[1].splitlines()[1].split() == ["Water", "650,348", "-", "-"]
    folder = home / ".cache" / "dp_calc" / "models"
    folder.mkdir(parents=True)
    shutil.copy(water_model(), folder / "Water.pt")
    row = dp_calc("models")[1].splitlines()[1].split()
    assert row == ["Water", "650,348", "2.7", str(folder / "Water.pt")]
    for name in ("Water", "water"):
        assert DP(name).model.source.path == folder / "Water.pt"
        status, out, _ = dp_calc("info", name)
        assert status == 0
        assert str(folder / "Water.pt") in out


def test_a_damaged_file_counts_as_absent(dp_calc, home, released):
    folder = home / ".cache" / "dp_calc" / "models"
    folder.mkdir(parents=True)
    (folder / "Water.pt").write_bytes(water_model().read_bytes()[:-1])
    assert dp_calc("models")[1].splitlines()[1].split() == ["Water", "650,348", "-", "-"]


@pytest.mark.parametrize("name", [NAMES[2], NAMES[2].lower()])
def test_without_a_network_both_ways_to_get_one_are_told(name, dp_calc, home):
    with pytest.raises(FileNotFoundError, match="is not on this machine") as error:
        DP(name)
    sentence = str(error.value)
    assert "either install dp-calc[hub] and be online, or put the file" in sentence
    assert f"{NAMES[2]}.pt into {home / '.cache' / 'dp_calc' / 'models'}" in sentence
    assert "\n" not in sentence
    status, out, err = dp_calc("info", name)
    assert (status, out) == (2, "")
    assert err.endswith(f"error: {sentence}\n")


def test_unknown_names_list_the_known_ones(dp_calc):
    status, _, err = dp_calc("info", "DPA4-Huge")
    assert status == 2
    assert f"released models: {', '.join(NAMES)}" in err
