"""Names that mean one file, files that are missing, and files that may not be read."""

import gzip
import json
import os
import shutil
import unicodedata
import zipfile
from pathlib import Path

import pytest

from qpriv.datasets.check import check
from qpriv.datasets.conversations import Conversations
from qpriv.datasets.dpriv.celeba import CelebA
from qpriv.datasets.files import DiskFile
from qpriv.datasets.sample import MissingImage
from qpriv.datasets.slake import SLAKE
from qpriv.datasets.tree import FileTree, MissingFileError
from qpriv.datasets.vqa_rad import VQARAD
from qpriv.errors import DataError
from tests.data import pictures
from tests.data.celeba import data as celeba
from tests.data.conversations import data as conversations
from tests.data.slake import data as slake
from tests.data.vqa_rad import data as vqa_rad
from tests.qpriv.datasets.contract import rewrite

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "café.jpg") for form in ("NFC", "NFD"))


@pytest.fixture
def images(tmp_path):
    """Return a function that finds an image by name among files of given names."""

    def find(name, *files, **settings):
        for number, file in enumerate(files):
            pictures.save(tmp_path / file, number)
        return FileTree(tmp_path).images(**settings).find(name, "record 0")

    return find


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("images/a.jpg", "images/a.jpg"),
        ("./images/a.jpg", "images/a.jpg"),
        ("images\\a.jpg", "images/a.jpg"),
        (".\\images\\\\a.jpg", "images/a.jpg"),
        ("images//./a.jpg", "images/a.jpg"),
        (" images/a.jpg\n", "images/a.jpg"),
        ("images/a.jpg", "images/A.JPG"),
        ("IMAGES/A.jpg", "images/a.jpg"),
        ("images/a.jpeg", "images/a.jpg"),
        ("images/a.JPG", "images/a.jpeg"),
        ("images/a", "images/a.png"),
        (f"images/{COMPOSED}", f"images/{DECOMPOSED}"),
        (f"images/{DECOMPOSED}", f"images/{COMPOSED}"),
        (f"images/{DECOMPOSED.upper()}", f"images/{COMPOSED}"),
    ],
)
@pytest.mark.parametrize("parts", [1, 2, None])
def test_a_name_spelt_otherwise_is_the_same_image(images, name, file, parts):
    picture = images(name, file, "images/other.jpg", parts=parts)
    assert picture.source.load().size == (12, 10)
    assert picture.path == unicodedata.normalize("NFC", file)


def test_the_file_that_is_called_just_so_is_preferred(images):
    picture = images("images/a.jpg", "images/A.jpg", "images/a.jpg", "images/a.JPG")
    assert picture.source.path.name == "a.jpg"


def test_another_format_is_another_image_and_told_as_the_nearest(images):
    picture = images("images/1.jpg", "masks/1.png")
    assert isinstance(picture.source, MissingImage)
    assert picture.source.instead == "the nearest is masks/1.png"


def test_two_images_that_differ_and_have_equal_claims_are_an_error(images):
    with pytest.raises(DataError, match=r"2 of images 1\.jpg that differ: a/1\.jpg, b/1\.jpg"):
        images("1.jpg", "a/1.jpg", "b/1.jpg")


def test_copies_of_an_image_are_one_and_the_nearest_of_several_is_read(tmp_path):
    for folder in ("a", "b"):
        pictures.save(tmp_path / folder / "1.jpg", 1)
    pictures.save(tmp_path / "a/small/1.jpg", 2)
    tree = FileTree(tmp_path)
    assert tree.images().find("1.jpg", "here").path == "a/1.jpg"
    assert tree.report.repaired.total() == 1


def test_an_absolute_path_inside_the_root_is_a_path_below_it(tmp_path):
    root = slake.write_release(tmp_path / "data")
    (tmp_path / "link").symlink_to(root)
    inside = str(root / "imgs/xmlab2/source.jpg")
    rewrite(root / "test.json", lambda rows: [rows[0] | {"img_name": inside}])
    for given in (root, tmp_path / "link"):
        (sample,) = SLAKE(given, "test").samples
        assert sample.image.load() and sample.image_id == "xmlab2"
    rewrite(root / "test.json", lambda rows: [rows[0] | {"img_name": f"{tmp_path}/other.jpg"}])
    with pytest.raises(DataError, match="leaves the data folder"):
        SLAKE(root, "test")


def test_the_names_of_a_zip_may_have_backslashes(tmp_path):
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for name in ("imgs\\xmlab0\\source.jpg", "imgs\\xmlab1\\._source.jpg", "imgs\\empty\\"):
            archive.writestr(zipfile.ZipInfo(name), pictures.encoded(0) if "jpg" in name else b"")
    tree = FileTree(tmp_path)
    assert set(tree.names()) == {"images.zip", "imgs/xmlab0/source.jpg"}
    assert tree.images(parts=2).find("xmlab0\\source.jpg", "here").source.load().size == (12, 10)


def test_utf_8_names_that_are_not_marked_as_such_are_read(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("caf__.jpg", pictures.encoded(1))
    path.write_bytes(path.read_bytes().replace(b"caf__", "café".encode()))
    tree = FileTree(tmp_path)
    assert tree.images().find(COMPOSED, "here").source.load().size == (12, 10)
    with tree.get(COMPOSED).open() as stream:
        assert stream.read() == pictures.encoded(1)


def test_spellings_of_one_file_are_one_image_and_one_group(tmp_path):
    root = conversations.write_release(tmp_path)
    spelt = ["c/1.jpg", "./c/1.jpg", "c\\1.jpg", "images/c/1.jpg", "coco/images/c/1.JPG"]
    rewrite(root / "val.json", lambda rows: [rows[0] | {"image": n, "id": n} for n in spelt])
    dataset = Conversations(root, "val")
    assert dataset.report.images == 1 and dataset.report.missing_images == 0
    assert len({sample.group_id for sample in dataset.samples}) == 1
    assert dataset.report.repaired["image name that is spelt otherwise than its file"] == 2


def test_links_to_one_file_are_one_image(tmp_path):
    root = conversations.write_release(tmp_path / "root")
    shutil.move(root / "images/c/1.jpg", tmp_path / "store.jpg")
    for name in ("1.jpg", "9.jpg"):
        (root / "images/c" / name).symlink_to(tmp_path / "store.jpg")
    (root / "again").symlink_to(root / "images")
    names = ["c/1.jpg", "c/9.jpg", "images/c/1.jpg", "again/c/9.jpg"]
    rewrite(root / "val.json", lambda rows: [rows[0] | {"image": n, "id": n} for n in names])
    assert Conversations(root, "val").report.images == 1


def test_slake_names_images_by_the_folder_of_the_file(tmp_path):
    root = slake.write_release(tmp_path)
    for file in ("train.json", "test.json"):
        rewrite(
            root / file,
            lambda rows: [row | {"img_name": f"imgs/{row['img_name']}"} for row in rows],
        )
    dataset = SLAKE(root, "train")
    assert {s.image_id for s in dataset.samples} == {"xmlab0", "xmlab1"}
    assert {s.group_id for s in dataset.samples} == {"slake/xmlab0", "slake/xmlab1"}


def test_own_images_in_slakes_layout_are_named_by_file(tmp_path):
    rows = []
    for number, name in enumerate(("scans/1.png", "scans/2.png", "a/xmlab7/source.png",
                                   "b/xmlab7/source.png")):  # fmt: skip
        pictures.save(tmp_path / "imgs" / name, number)
        rows.append(slake.records("train")[0] | {"img_name": name, "qid": number})
    (tmp_path / "train.json").write_text(json.dumps(rows))
    assert [s.image_id for s in SLAKE(tmp_path, "train").samples] == [
        "scans/1.png", "scans/2.png", "imgs/a/xmlab7", "imgs/b/xmlab7",
    ]  # fmt: skip


def test_images_of_one_name_in_two_folders_are_two(tmp_path):
    rows = vqa_rad.records()[:2]
    for number, patient in enumerate(("a", "b")):
        pictures.save(tmp_path / patient / "1.jpg", number)
        rows[number]["image_name"] = f"{patient}/1.jpg"
    (tmp_path / "VQA_RAD Dataset Public.json").write_text(json.dumps(rows))
    dataset = VQARAD(tmp_path, "train", val_fraction=0)
    assert [s.image_id for s in dataset.samples] == ["a/1.jpg", "b/1.jpg"]


def test_celeba_reads_the_aligned_images_beside_those_in_the_wild(tmp_path):
    root = celeba.write_release(tmp_path)
    want = [sample.image.load().tobytes() for sample in CelebA(root, "train").samples]
    folder = next(root.rglob("img_align_celeba"))
    for path in folder.iterdir():
        pictures.save(folder.with_name("img_celeba") / path.name, 77)
    found = CelebA(root, "train").samples
    assert [sample.image.load().tobytes() for sample in found] == want


@pytest.mark.parametrize("name", ["train.JSON", "train.json.GZ", "Train.json"])
def test_a_file_whose_name_differs_in_case_is_read_and_told(tmp_path, name):
    root = slake.write_release(tmp_path)
    data = (root / "train.json").read_bytes()
    (root / "train.json").unlink()
    (root / name).write_bytes(gzip.compress(data) if name.endswith("GZ") else data)
    report = SLAKE(root, "train").report
    assert report.kept == 6
    assert (f"{name} is read as train.json" in report.notes) is (name != "train.json.GZ")


def test_the_first_missing_names_are_told_with_the_nearest_file(tmp_path):
    root = slake.write_release(tmp_path)
    (root / "imgs/xmlab3/source.jpg").rename(root / "imgs/xmlab3/source1.jpg")
    found = check("SLAKE", root)
    assert not found.is_sound
    (val,) = [report for report in found.reports if report.split == "val"]
    assert val.missing == ("xmlab3/source.jpg (the nearest is imgs/xmlab3/source1.jpg)",)
    assert "missing: xmlab3/source.jpg (the nearest is imgs/xmlab3/source1.jpg)" in str(found)


def test_a_missing_file_is_told_with_what_is_there_instead(tmp_path):
    root = slake.write_release(tmp_path)
    (root / "train.json").rename(root / "training.json")
    with pytest.raises(MissingFileError, match=r"no file train\.json, the nearest is training\.j"):
        SLAKE(root, "train")
    (root / "train.json").mkdir()
    with pytest.raises(MissingFileError, match=r"no file train\.json, train\.json is a folder"):
        SLAKE(root, "train")
    (root / "train.json").rmdir()
    (root / "train.json").symlink_to(root / "nowhere")
    with pytest.raises(MissingFileError, match=r"train\.json is a link to nothing"):
        SLAKE(root, "train")
    (root / "train.json").unlink()
    os.mkfifo(root / "train.json")
    with pytest.raises(MissingFileError, match=r"train\.json is neither a file nor a folder"):
        SLAKE(root, "train")


def forbid(monkeypatch, *paths):
    """Let some paths be unreadable, as they are to others than root."""
    forbidden = {str(path) for path in paths}

    def refusing(real):
        def call(path, *args, **kwargs):
            if str(path) in forbidden:
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *args, **kwargs)

        return call

    monkeypatch.setattr(os, "scandir", refusing(os.scandir))
    monkeypatch.setattr(Path, "open", refusing(Path.open))
    monkeypatch.setattr(Path, "stat", refusing(Path.stat))


def test_a_file_that_may_not_be_read_is_not_missing(tmp_path, monkeypatch):
    root = slake.write_release(tmp_path)
    forbid(monkeypatch, root / "imgs/xmlab3/source.jpg", root / "test.json")
    with pytest.raises(DataError, match=r"may not be read: Permission denied .*test\.json.*chmod"):
        SLAKE(root, "test")
    monkeypatch.undo()
    forbid(monkeypatch, root / "imgs/xmlab3/source.jpg")
    found = check("SLAKE", root)
    (val,) = [report for report in found.reports if report.split == "val"]
    assert (val.missing_images, val.broken_images) == (0, 1)
    assert "may not be read: Permission denied" in found.broken[0]


def test_a_folder_that_may_not_be_listed_is_told_where_its_files_are_missing(tmp_path, monkeypatch):
    root = slake.write_release(tmp_path)
    forbid(monkeypatch, root / "imgs/xmlab3")
    (missing,) = SLAKE(root, "val").report.missing
    assert missing == "xmlab3/source.jpg (imgs/xmlab3 may not be read: Permission denied)"
    assert SLAKE(root, "train").report.missing_images == 0
    forbid(monkeypatch, root)
    with pytest.raises(DataError, match="may not be read"):
        FileTree(root)
    with pytest.raises(DataError, match="may not be read"):
        DiskFile(root).open()


def test_the_text_of_a_link_is_told(tmp_path):
    root = slake.write_release(tmp_path)
    (root / "train.json").write_text("../blobs/0a1b2c")
    with pytest.raises(DataError, match=r"target of a link .*blobs/0a1b2c.*train\.json.*cp -L"):
        SLAKE(root, "train")
