"""Archives unpack no further than a limit, and what is no regular file is not waited for."""

import gzip
import json
import os
import socket
import tracemalloc
import zipfile

import pytest

from qpriv.datasets import unpacking
from qpriv.datasets.check import check
from qpriv.datasets.files import DiskFile, open_data, read_data
from qpriv.datasets.sample import FileImage
from qpriv.datasets.tree import FileTree
from qpriv.errors import ConfigError, DataError
from tests.data.slake import data as slake

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(unpacking, "_FLOOR", 2 * MEGABYTE)


@pytest.fixture
def bomb(tmp_path):
    """Pack 30 MiB of nothing into 30 KB."""
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.json", bytes(30 * MEGABYTE))
    return FileTree(tmp_path / "bomb.zip").get("train.json")


@pytest.fixture
def packed(tmp_path):
    """Pack the same as gzip."""
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(30 * MEGABYTE), 9))
    return DiskFile(tmp_path / "bomb.gz")


@pytest.mark.parametrize("name", ["bomb", "packed"])
def test_a_bomb_is_refused_before_it_fills_the_memory(name, request, monkeypatch):
    file = request.getfixturevalue(name)
    tracemalloc.start()
    with pytest.raises(DataError, match=rf"more than 6\d{{6}} bytes.*{unpacking.SETTING}"):
        read_data(file)
    with pytest.raises(DataError, match="more than"), open_data(file) as stream:
        while stream.read(MEGABYTE):
            pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * MEGABYTE
    monkeypatch.setenv(unpacking.SETTING, str(40 * MEGABYTE))
    assert len(read_data(file)) == 30 * MEGABYTE
    monkeypatch.setenv(unpacking.SETTING, "0")
    with pytest.raises(ConfigError, match="'0' is no limit"):
        read_data(file)


def test_what_is_held_in_memory_at_once_has_a_limit_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "_WHOLE", 999)
    (tmp_path / "a.gz").write_bytes(gzip.compress(os.urandom(1000)))
    with pytest.raises(DataError, match="more than 999 bytes"):
        read_data(DiskFile(tmp_path / "a.gz"))
    with open_data(DiskFile(tmp_path / "a.gz")) as stream:
        assert len(stream.read()) == 1000  # read in pieces there is no need for one


def test_a_record_without_an_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("qpriv.datasets.json_stream.LARGEST", 9 * MEGABYTE)
    root = slake.write_release(tmp_path)
    (root / "train.json").write_text('[{"question": "' + "x" * 20 * MEGABYTE)
    with pytest.raises(DataError, match=r"a record of more than \d+ bytes.*train\.json"):
        check("SLAKE", root)


@pytest.mark.parametrize("kind", ["FIFO", "socket", "folder"])
def test_only_regular_files_are_opened(tmp_path, kind):
    path = tmp_path / "a"
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
    else:
        path.mkdir()
    for use in (DiskFile(path).open, DiskFile(path).read, FileImage(path).load):
        with pytest.raises(DataError, match=rf"a {kind}, not a regular file.*/a\): put"):
            use()
    with pytest.raises(DataError, match="a device, not a regular file"):
        FileTree("/dev/zero")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("train.json", "train.json is neither a file nor a folder"),
        ("imgs/xmlab1/source.jpg", "source.jpg is neither a file nor a folder"),
        ("imgs.zip", "is sound"),  # nobody needs it
    ],
)
def test_a_check_does_not_wait_for_a_fifo(tmp_path, name, told):
    root = slake.write_release(tmp_path)
    (root / name).unlink(missing_ok=True)
    os.mkfifo(root / name)
    found = check("SLAKE", root)
    assert told in f"{found}\n{'is sound' if found.is_sound else ''}"


def test_the_largest_files_of_releases_are_far_from_the_limit():
    row = {"question_id": 262148000, "question": "What colour is it?", "image_id": 262148}
    data = json.dumps([row | {"question_id": 262148000 + index} for index in range(20_000)])
    assert unpacking._RATIO * len(gzip.compress(data.encode(), 9)) > 5 * len(data)
