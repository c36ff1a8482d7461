"""Text files by their encoding: UTF-8 and UTF-16 are read, other encodings are named."""

import csv

import pytest

from qpriv.attacks.irrelevant_questions import load_phrases
from qpriv.datasets.check import check
from qpriv.datasets.documents.pii import PIIKind, read_overrides
from qpriv.datasets.documents.preparation import (
    load_canaries,
    prepare_canaries,
    read_judged,
    write_review_table,
)
from qpriv.datasets.encodings import text_of
from qpriv.datasets.tables import read_table
from qpriv.defences.question_changes import FileParaphrase
from qpriv.errors import DataError
from tests.data.celeba import data as celeba
from tests.data.nih import data as nih
from tests.qpriv.datasets.documents.test_canaries import training  # noqa: F401 - a fixture
from tests.qpriv.datasets.test_broken_releases import RELEASES

BOM = b"\xef\xbb\xbf"
TEXTS = {".json", ".csv", ".txt"}


@pytest.mark.parametrize("name", [name for name in RELEASES if name not in ("EuroSAT", "MNIST")])
def test_a_byte_order_mark_and_utf_16_change_nothing(name, tmp_path):
    dataset, write = RELEASES[name]
    (tmp_path / "release").mkdir()
    root = write(tmp_path / "release")
    want = str(check(dataset, root, decode_images=False))
    texts = [path for path in sorted(root.rglob("*")) if path.suffix in TEXTS]
    for path in texts:
        plain = path.read_bytes()
        path.write_bytes(BOM + plain)
        assert str(check(dataset, root, decode_images=False)) == want, path.name
        path.write_bytes(plain)
    for path in texts:
        plain = path.read_bytes()
        if "train_all" in path.name:  # not what is checked
            continue
        path.write_bytes(plain.decode().encode("utf-16"))
        found = str(check(dataset, root, decode_images=False)).splitlines()
        assert [line for line in found if "UTF-16" not in line] == want.splitlines(), path.name
        path.write_bytes(plain)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"caf\xe9, 1", r"0xe9, in Latin-1 'é' \(in a\.csv, line 1\)"),
        (b"a\nb\n\xff\xff", r"0xff.*line 3"),
        ("a,b\n".encode("utf-16")[:-1], "UTF-16 that is damaged"),
        ("a,b\n".encode("utf-32-be")[:-1], "UTF-32 that is damaged"),
    ],
)
def test_other_encodings_are_named(data, told):
    with pytest.raises(DataError, match=told):
        text_of(data, "a.csv")


def test_what_only_looks_odd_is_text():
    assert text_of(BOM + "é中".encode(), "a") == "é中"
    assert text_of(b"", "a") == ""
    assert text_of(bytes(10), "a") == "\0" * 10  # nulls are no letters of UTF-16


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_utf_16_and_utf_32_are_read_with_a_mark_and_without(codec):
    assert text_of("a,é\n中".encode(codec), "a") == "a,é\n中"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_tables_as_spreadsheets_save_them(tmp_path, delimiter, end):
    lines = [["key", "pii"], ["Fake/train/1", "person"], ["", ""], ['"a;b,c"', ""]]
    text = end.join(delimiter.join(line) for line in lines)
    (tmp_path / "a.csv").write_bytes(BOM + text.encode())
    rows = read_table(tmp_path / "a.csv", ("key", "pii"))
    assert rows == [(2, {"key": "Fake/train/1", "pii": "person"}), (4, {"key": "a;b,c", "pii": ""})]
    assert read_overrides(tmp_path / "a.csv")["Fake/train/1"].kind is PIIKind.PERSON


@pytest.mark.parametrize(
    ("data", "told"),
    [(b"", "empty"), (b"key\n1\n", "no column pii.*it has key"), (b"key,pii\n\xe9,", "Latin-1")],
)
def test_what_is_no_such_table_is_named(tmp_path, data, told):
    (tmp_path / "a.csv").write_bytes(data)
    with pytest.raises(DataError, match=rf"{told}"):
        read_overrides(tmp_path / "a.csv")
    with pytest.raises(DataError, match="is not there"):
        read_overrides(tmp_path / "b.csv")


def test_a_review_that_a_spreadsheet_saved_is_understood(tmp_path, training):  # noqa: F811
    kept = prepare_canaries(training, tmp_path, number=20).canaries
    table = write_review_table(kept, tmp_path)
    rows = list(csv.reader(table.open(newline="", encoding="utf-8")))
    rows[1][rows[0].index("keep")] = "no"
    with table.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=";").writerows(rows)
    judged = tmp_path / "canaries.jsonl"
    judged.write_bytes(BOM + judged.read_bytes())
    assert len(read_judged(judged)) == 20
    assert len(load_canaries(tmp_path)) == len(kept) - 1


def test_tables_of_questions_may_have_a_mark_and_are_checked(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(BOM + b'{"who ?": "tell me who .", "when ?": ["tell me when ."]}')
    assert FileParaphrase(path)("when ?") == "tell me when ."
    for wrong in (
        b'{"who ?": null}',
        b'{"who ?": [1]}',
        b'{"who ?": []}',
        b"[",
        "é".encode("latin1"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(DataError, match=r"a\.json"):
            FileParaphrase(path)
        with pytest.raises(DataError, match=r"a\.json"):
            load_phrases(path)


def spoilt(path, old, new):
    path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("list_attr_celeba.txt", " -1", " x", r"'x' is no value.*line \d"),
        ("list_eval_partition.txt", "jpg 0", "jpg 7", r"'7' is no part.*line 1"),
        ("identity_CelebA.txt", "1000", "nobody", r"'nobody' is no number.*line 1"),
    ],
)
def test_values_of_celeba_are_checked(tmp_path, file, old, new, told):
    root = celeba.write_release(tmp_path)
    spoilt(root / "celeba" / file, old, new)
    with pytest.raises(DataError, match=told):
        check("CelebA", root, decode_images=False)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [("No Finding", "", "no findings"), (",0,1,58", ",0,,58", "no patient")],
)
def test_values_of_chest_x_rays_are_checked(tmp_path, old, new, told):
    root = nih.write_release(tmp_path)
    spoilt(root / "Data_Entry_2017_v2020.csv", old, new)
    with pytest.raises(DataError, match=rf"{told}.*line 2"):
        check("NIHChestXray14", root, decode_images=False)
