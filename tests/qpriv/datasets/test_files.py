import gzip
import pickle
import zipfile

import numpy as np
import pytest
from PIL import Image

from qpriv.datasets.files import DiskFile, open_data
from qpriv.datasets.pickles import NUMPY_ARRAY, load_pickle
from qpriv.datasets.report import DataReport
from qpriv.datasets.sample import FileImage
from qpriv.datasets.tree import FileTree, MissingFileError
from qpriv.errors import DataError
from tests.data import pictures


def write_zip(path, members, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    "name", ["../escaped.json", "/elsewhere/escaped.json", "a/../../b", "C:\\x.json"]
)
def test_an_archive_that_would_leave_its_folder_is_refused(tmp_path, name):
    write_zip(tmp_path / "slip.zip", {"ok.json": "{}", name: "{}"})
    with pytest.raises(DataError, match="leaves the data folder"):
        FileTree(tmp_path)
    assert not (tmp_path.parent / "escaped.json").exists()


def test_a_half_unpacked_release_reads_as_one(tmp_path):
    write_zip(tmp_path / "images.zip", {"images/1.jpg": pictures.encoded(1), "a.json": "[1]"})
    (tmp_path / "a.json").write_text("[2]")
    pictures.save(tmp_path / "images/2.jpg", 2)
    tree = FileTree(tmp_path)
    assert set(tree.images()) == {"1.jpg", "2.jpg"}
    found = tree.find("a.json")
    assert found is not None and found.read() == b"[2]"  # what is unpacked is preferred
    assert tree.images().source("1.jpg", "here").load().size == (12, 10)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archive_members_are_read_by_offset_and_checked(tmp_path, method):
    path = tmp_path / "a.zip"
    write_zip(path, {"x/1.png": pictures.encoded(1), "x/2.png": b"x" * 999}, compression=method)
    tree = FileTree(path)
    assert tree.get("x/2.png").read() == b"x" * 999
    with tree.get("x/2.png").open() as stream:
        assert stream.read() == b"x" * 999
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF  # inside the first member
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.zip/x/1\.png.*download"):
        FileTree(path).get("x/1.png").read()


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda data: data[:-40], "not a readable zip archive"),
        (lambda data: b"<html>quota</html>", "web page"),
        (lambda data: b"", "empty"),
    ],
)
def test_a_damaged_archive_stops_only_who_needs_it(tmp_path, break_it, message):
    write_zip(tmp_path / "a.zip", {"x": b"x" * 999})
    (tmp_path / "a.zip").write_bytes(break_it((tmp_path / "a.zip").read_bytes()))
    with pytest.raises(DataError, match=message):
        FileTree(tmp_path / "a.zip")  # named itself
    pictures.save(tmp_path / "1.jpg", 1)
    tree = FileTree(tmp_path, report := DataReport("SLAKE", "train"))
    assert tree.images().source("1.jpg", "here").load().size == (12, 10)
    assert "a.zip is left out" in report.notes[0] and message in report.notes[0]
    with pytest.raises(MissingFileError, match=rf"no file x; a\.zip is left out: .*{message}"):
        tree.require("x", remedy="unpack it")
    with pytest.raises(DataError, match=rf"other\.jpg.*a\.zip is left out: .*{message}"):
        tree.images().source("other.jpg", "here").load()
    (tmp_path / "1.jpg").unlink()
    with pytest.raises(DataError, match=message):  # no picture anywhere: the archive is needed
        FileTree(tmp_path).images().source("2.jpg", "here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda info: setattr(info, "header_offset", 10**6), "ends before"),
        (lambda info: setattr(info, "header_offset", 3), "points to no member"),
        (lambda info: setattr(info, "flag_bits", 1), "encrypted"),
        (lambda info: setattr(info, "compress_type", 98), "unusual method"),
    ],
)
def test_a_member_that_cannot_be_unpacked_stops_only_who_needs_it(tmp_path, change, message):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("good.json", "[]")
        archive.writestr("bad.json", "[]")
        change(archive.getinfo("bad.json"))  # as the table of contents says, written on closing
    tree = FileTree(tmp_path)
    assert tree.require("good.json", remedy="").read() == b"[]"
    bad = tree.require("bad.json", remedy="")
    with pytest.raises(DataError, match=rf"{message}.*a\.zip/bad\.json.*download"):
        bad.read()
    with pytest.raises(DataError, match=message):
        open_data(bad)


def test_folders_behind_links_are_read_once(tmp_path):
    pictures.save(tmp_path / "store/1.jpg", 1)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/images").symlink_to(tmp_path / "store")
    (tmp_path / "store/loop").symlink_to(tmp_path / "store")
    assert list(FileTree(tmp_path / "root").images()) == ["1.jpg"]


def test_gzip_is_read_under_its_own_name_only(tmp_path):
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b"[]"))
    (tmp_path / "b.json.gz").write_bytes(b"[]")
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(b"[]" * 999)[:-9])
    assert open_data(DiskFile(tmp_path / "a.json.gz")).read() == b"[]"
    with pytest.raises(DataError, match="not gzip"):
        open_data(DiskFile(tmp_path / "b.json.gz"))


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK", "1", "I;16", "I", "F", "YCbCr"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    grey = Image.fromarray(np.full((4, 5), 200, np.uint8))
    if mode == "I;16":
        image = Image.fromarray(np.full((4, 5), 200 << 8, np.uint16))
    else:
        image = grey.convert("RGB").convert(mode) if mode != "I" else grey.convert("I")
    path = tmp_path / ("x.tif" if mode in ("CMYK", "F", "YCbCr", "I") else "x.png")
    image.save(path)
    loaded = FileImage(path).load()
    assert loaded.mode == "RGB"
    wanted = 255 if mode == "1" else 200  # dithered to two levels, the corner is white
    error = abs(int(np.asarray(loaded)[0, 0, 0]) - wanted)
    assert error <= (6 if mode == "P" else 2)  # the palette has steps of 51


def test_sixteen_bit_grey_keeps_its_range(tmp_path):
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    loaded = np.asarray(FileImage(tmp_path / "ramp.png").load())[..., 0]
    assert (loaded.reshape(-1) == ramp.reshape(-1) >> 8).all()


def test_a_palette_image_with_transparency_is_laid_on_white(tmp_path):
    image = Image.new("P", (2, 1), 0)
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "p.png", transparency=0)
    pixels = np.asarray(FileImage(tmp_path / "p.png").load())
    assert pixels.tolist() == [[[255, 255, 255], [0, 255, 0]]]


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"<html>", "web page"), (b"version https://git-lfs", "LFS"), (b"GIF89a??", "not a readable")],
)
def test_what_is_no_image_is_named(tmp_path, data, message):
    (tmp_path / "x.jpg").write_bytes(data)
    with pytest.raises(DataError, match=rf"{message}.*x\.jpg"):
        FileImage(tmp_path / "x.jpg").load()


def test_a_truncated_image_is_named(tmp_path):
    pictures.save(tmp_path / "x.jpg", 1, size=(64, 64))
    data = (tmp_path / "x.jpg").read_bytes()
    (tmp_path / "x.jpg").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=r"not a readable image.*x\.jpg.*download"):
        FileImage(tmp_path / "x.jpg").load()


class Malicious:
    """Touches a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (open, (str(self.marker), "w"))


@pytest.mark.parametrize("protocol", range(6))
def test_no_code_of_a_pickle_runs(tmp_path, protocol):
    marker, path = tmp_path / "marker", tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps([{"a": 1}, Malicious(marker)], protocol))
    with pytest.raises(DataError, match=r"could run code .*x\.pkl.*do not use"):
        load_pickle(DiskFile(path), list)
    assert not marker.exists()


def test_object_arrays_do_not_smuggle_code(tmp_path):
    marker, path = tmp_path / "marker", tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps(np.array([Malicious(marker)], dtype=object), 2))
    with pytest.raises(DataError, match="could run code"):
        load_pickle(DiskFile(path), np.ndarray, NUMPY_ARRAY)
    assert not marker.exists()


@pytest.mark.parametrize("cut", [1, 7, 60])
def test_a_truncated_pickle_is_one_error(tmp_path, cut):
    data = pickle.dumps([{"image": "x", "question": "?" * 99, "answer": "a"}], 2)
    (tmp_path / "x.pkl").write_bytes(data[:cut])
    with pytest.raises(DataError, match=r"x\.pkl.*download"):
        load_pickle(DiskFile(tmp_path / "x.pkl"), list)
