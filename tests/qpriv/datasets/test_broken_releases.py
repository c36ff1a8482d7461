"""Every file of every release and mirror, broken in every way files break: one error that helps."""

import gzip
import io
import json
import pickle
import random
import zipfile

import pytest

from qpriv.datasets.check import check
from qpriv.datasets.dpriv import eurosat as eurosat_set
from qpriv.errors import DataError
from tests.data.celeba import data as celeba
from tests.data.cifar10 import data as cifar10
from tests.data.conversations import data as conversations
from tests.data.eurosat import data as eurosat
from tests.data.gqa import data as gqa
from tests.data.mnist import data as mnist
from tests.data.nih import data as nih
from tests.data.okvqa import data as okvqa
from tests.data.path_vqa import data as path_vqa
from tests.data.slake import data as slake
from tests.data.vqa_rad import data as vqa_rad
from tests.data.vqav2 import data as vqav2

RELEASES = {
    "GQA": ("GQA", gqa.write_release),
    "GQA mirror": ("GQA", gqa.write_mirror),
    "VQAv2": ("VQAv2", vqav2.write_release),
    "VQAv2 mirror": ("VQAv2", vqav2.write_mirror),
    "OKVQA": ("OKVQA", okvqa.write_release),
    "OKVQA mirror": ("OKVQA", okvqa.write_mirror),
    "SLAKE": ("SLAKE", slake.write_release),
    "SLAKE mirror": ("SLAKE", slake.write_mirror),
    "VQARAD": ("VQARAD", vqa_rad.write_release),
    "VQARAD mirror": ("VQARAD", vqa_rad.write_mirror),
    "VQARAD as MEVF": ("VQARAD", vqa_rad.write_mevf),
    "PathVQA": ("PathVQA", path_vqa.write_release),
    "PathVQA mirror": ("PathVQA", path_vqa.write_mirror),
    "Conversations": ("Conversations", conversations.write_release),
    "CelebA": ("CelebA", celeba.write_release),
    "CelebA of Kaggle": ("CelebA", celeba.write_kaggle),
    "NIH": ("NIHChestXray14", nih.write_release),
    "MNIST": ("MNIST", mnist.write_release),
    "MNIST packed": ("MNIST", lambda root: mnist.write_release(root, packed=True)),
    "CIFAR10": ("CIFAR10", cifar10.write_release),
    "EuroSAT": ("EuroSAT", lambda root: eurosat.write_release(root, eurosat_set.CLASSES)),
}
PICTURES = {".jpg", ".png"}
MEMBER = io.BytesIO()
with zipfile.ZipFile(MEMBER, "w") as archive:
    archive.writestr("a", "b")


def flipped(data, rng):
    """Return data with five bits turned."""
    changed = bytearray(data)
    for _ in range(5):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def mistyped(data, rng):
    """Return JSON with one value of another kind; other data as is."""
    try:
        content = json.loads(data)
    except ValueError:
        return data
    places = []

    def collect(part):
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            places.append((part, key))
            if isinstance(value, dict | list):
                collect(value)

    collect(content)
    part, key = rng.choice(places)
    part[key] = rng.choice(
        [None, [], {}, -1, 1e400, "", "\x00", "../../x", "\ud800", 10**30, [[1]]]
    )
    return json.dumps(content).encode()


BREAKS = {
    "cut short": lambda data, rng: data[: len(data) * 9 // 10],
    "cut in half": lambda data, rng: data[: len(data) // 2],
    "web page": lambda data, rng: b"<!DOCTYPE html><html>quota</html>",
    "pointer": lambda data, rng: b"version https://git-lfs.github.com/spec/v1\noid sha256:0",
    "empty": lambda data, rng: b"",
    "blank": lambda data, rng: b" \n",
    "gzip": lambda data, rng: gzip.compress(data),
    "zip": lambda data, rng: MEMBER.getvalue(),
    "noise": lambda data, rng: rng.randbytes(300),
    "zeros": lambda data, rng: bytes(500),
    "null": lambda data, rng: b"null",
    "numbers": lambda data, rng: b"[1, 2]",
    "utf-16 cut": lambda data, rng: "[]".encode("utf-16")[:-1],
    "other pickle": lambda data, rng: pickle.dumps({"data": None, b"labels": 1}, 2),
    "pickled list": lambda data, rng: pickle.dumps([None, 1, {"a": 1}], 2),
    **{f"flipped {number}": flipped for number in range(4)},
    **{f"mistyped {number}": mistyped for number in range(8)},
}
HARMLESS = ("flipped", "mistyped", "cut", "blank", "gzip")
"""Breaks that may hit what nobody reads, or leave a file that is whole to its last line."""


@pytest.mark.parametrize("name", RELEASES)
def test_no_broken_file_is_more_than_one_error_with_place_and_remedy(name, tmp_path):
    dataset, write = RELEASES[name]
    (tmp_path / "release").mkdir()
    root = write(tmp_path / "release")
    rng = random.Random(name)
    told = 0
    for path in sorted(root.rglob("*")):
        if not path.is_file() or path.suffix in PICTURES or "train_all" in path.name:
            continue  # pictures are decoded when asked for; the balanced set is what is checked
        whole = path.read_bytes()
        for what, change in BREAKS.items():
            path.write_bytes(broken := change(whole, rng))
            try:
                found = check(dataset, root, decode_images=False)
            except DataError as error:
                told += 1
                assert error.where and error.remedy, (path.name, what, str(error))
            else:
                unread = broken == whole or what.startswith(HARMLESS)
                assert unread or not found.is_sound or path.suffix == ".json", (path.name, what)
        path.write_bytes(whole)
    assert told > 0 or name == "EuroSAT"  # which is nothing but pictures
    assert check(dataset, root, decode_images=False).reports


def test_an_empty_list_of_records_is_not_sound(tmp_path):
    root = slake.write_release(tmp_path)
    (root / "test.json").write_text("[]")
    found = check("SLAKE", root)
    assert not found.is_sound and "SLAKE/test: 0 rows read, 0 kept" in str(found)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("train.json", "give the folder"), ("cifar-10-python.tar.gz", "unpack it")],
)
def test_a_root_that_is_no_archive_says_what_to_give(tmp_path, name, remedy):
    (tmp_path / name).write_bytes(gzip.compress(b"[]") if name.endswith("gz") else b"[]")
    with pytest.raises(DataError, match=remedy):
        check("SLAKE", tmp_path / name)
