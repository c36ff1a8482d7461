"""Which files make up a split: a whole series, once, of this set; or an error that says why not."""

import gzip
import re
import shutil
import zipfile

import pyarrow.parquet as pq
import pytest

from qpriv.datasets.documents.docvqa import DocVQA
from qpriv.datasets.gqa import GQA
from qpriv.datasets.parquet import mirror_files
from qpriv.datasets.path_vqa import PathVQA
from qpriv.datasets.report import DataReport
from qpriv.datasets.shards import MissingPartError
from qpriv.datasets.slake import SLAKE
from qpriv.datasets.tree import FileTree
from qpriv.datasets.vqa_rad import VQARAD
from qpriv.datasets.vqav2 import VQAv2
from qpriv.errors import DataError
from tests.data import pictures
from tests.data.gqa import data as gqa
from tests.data.path_vqa import data as path_vqa
from tests.data.slake import data as slake
from tests.data.vqa_rad import data as vqa_rad
from tests.data.vqav2 import data as vqav2
from tests.qpriv.datasets.contract import rewrite, zipped


def write_parts(root, *names, same=False):
    """Write parquet files of one row each."""
    for number, name in enumerate(names):
        row = {"image": pictures.cell(0), "question": "q?", "answer": "yes"}
        pictures.write_parquet(root / name, [row if same else row | {"question": f"q{number}?"}])
    return root


def read(root, *stems):
    """Return the names of the files of a series, and the notes about it."""
    report = DataReport("PathVQA", "train")
    files = mirror_files(FileTree(root, report), *stems or ("train",))
    return [str(file.path.relative_to(root)) for file in files], report.notes


@pytest.mark.parametrize(
    "names",
    [
        ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"],
        ["train-00000-of-00002-ab12.parquet", "train-00001-of-00002-cd34.parquet"],
        ["train-00001-of-00002.parquet", "train-00002-of-00002.parquet"],
        ["train-0.parquet", "train-1.parquet"],
        ["train-part-0.parquet", "train-part-1.parquet"],
        ["default/train/0000.parquet", "default/train/0001.parquet"],
        ["train/part-00000-c000.snappy.parquet", "train/part-00001-c000.snappy.parquet"],
        ["train/a.parquet", "train/b.parquet"],
        ["train/2014.parquet", "train/2017.parquet"],
        ["train.parquet"],
        ["Train.PARQUET"],
    ],
)
def test_a_whole_series_is_read_in_order(tmp_path, names):
    write_parts(tmp_path, *names, "data/test-00000-of-00001.parquet", "other.parquet")
    assert read(tmp_path) == (names, [])


@pytest.mark.parametrize(
    "name",
    [
        "test-dev-00000-of-00001.parquet", "testdev-00000-of-00001.parquet", "mytest.parquet",
        "test/train-00000-of-00001.parquet", "latest/0000.parquet",
    ],
)  # fmt: skip
def test_another_split_is_not_part_of_a_split(tmp_path, name):
    write_parts(tmp_path, name)
    assert read(tmp_path, "test") == ([], [])


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["data/train-00000-of-00003.parquet"], "2 of 3 parts .*train-00001-of-00003.*00002-of"),
        (["train-00001-of-00002.parquet"], r"train-00000-of-00002\.parquet"),
        (["train-00005-of-00009.parquet"], "8 of 9 parts .* and 3 more"),
        (["train/0000.parquet", "train/0002.parquet"], r"1 of 3 parts .*: 0001\.parquet"),
        (["train/0001.parquet", "train/0003.parquet"], r"0002\.parquet"),
        (["train/0003.parquet"], "3 of 4 parts"),
        (["partial-train/0000.parquet"], "the beginning of train alone"),
    ],
)
def test_missing_parts_are_named(tmp_path, names, missing):
    write_parts(tmp_path, *names)
    with pytest.raises(MissingPartError, match=missing) as caught:
        read(tmp_path)
    assert caught.value.remedy and str(tmp_path) in caught.value.where


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a/train-00000-of-00001.parquet", "b/train-00000-of-00001.parquet"], "b/train"),
        (["data/train-00000-of-00001.parquet", "default/train/0000.parquet"], "default/train"),
        (["train.parquet", "train (1)/train.parquet"], r"train \(1\)"),
        (["train/0000.parquet", "train/0000 (1).parquet"], r"0000 \(1\)"),
        (["train-00000-of-00001.parquet", "train-00000-of-00001 (1).parquet"], r"00001 \(1\)"),
        (["train/a.parquet", "train/b.parquet"], "train/b"),
    ],
)
def test_copies_are_read_once_and_told(tmp_path, names, told):
    write_parts(tmp_path, *names, same=True)
    files, notes = read(tmp_path)
    assert len(files) == 1
    assert len(notes) == 1 and re.search(f"{told}.* is the same as .*read once", notes[0])


@pytest.mark.parametrize(
    "names",
    [
        ["a/train-00000-of-00001.parquet", "b/train-00000-of-00001.parquet"],
        ["data/train-00000-of-00001.parquet", "data/train-00000-of-00001-ab12.parquet"],
        ["train-00000-of-00001.parquet", "train-00000-of-00002.parquet",
         "train-00001-of-00002.parquet"],
        ["train.parquet", "train-00000-of-00001.parquet"],
        ["pathvqa/train.parquet", "path-vqa/train.parquet"],
    ],
)  # fmt: skip
def test_series_that_differ_and_have_equal_claims_are_an_error(tmp_path, names):
    write_parts(tmp_path, *names)
    with pytest.raises(DataError, match=r"that differ: .*give the folder of one") as caught:
        read(tmp_path)
    assert all(name in str(caught.value) for name in names[:2])


@pytest.mark.parametrize(
    ("chosen", "other"),
    [
        ("data/train-00000-of-00001.parquet", "default/train/0000.parquet"),
        ("path-vqa/train.parquet", "vqa-rad/train.parquet"),
        ("datasets--x--path-vqa/train.parquet", "datasets--x--a/train.parquet"),
    ],
)
def test_the_nearest_series_or_the_one_named_after_the_set_is_read_and_told(
    tmp_path, chosen, other
):
    write_parts(tmp_path, chosen, other)
    assert read(tmp_path) == (
        [chosen],
        [f"{chosen} is read; {other} is another series, and is not"],
    )


def test_two_numbers_with_one_content_are_an_error_unless_they_are_empty(tmp_path):
    names = [f"train-0000{number}-of-00003.parquet" for number in range(3)]
    write_parts(tmp_path, *names)
    shutil.copy(tmp_path / names[0], tmp_path / names[2])
    with pytest.raises(DataError, match="two parts with the same content"):
        read(tmp_path)
    empty = pq.read_table(tmp_path / names[0]).slice(0, 0)
    for name in names[1:]:
        pq.write_table(empty, tmp_path / name)
    assert read(tmp_path) == (names, [])


def cache(tmp_path, *revisions, main=None):
    """Write a hub cache whose revisions link to blobs; equal files are one blob."""
    root = tmp_path / "datasets--someone--vqa-rad"
    (root / "blobs").mkdir(parents=True)
    for name, questions in revisions:
        for part in ("train", "test"):
            row = {"image": pictures.cell(0), "question": f"{questions} {part}", "answer": "yes"}
            blob = root / "blobs" / f"{questions}-{part}"
            pictures.write_parquet(blob, [row])
            link = root / "snapshots" / name / "data" / f"{part}-00000-of-00001.parquet"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(blob)
    if main:
        (root / "refs").mkdir()
        (root / "refs/main").write_text(main)
    return root


def test_of_a_hub_cache_one_revision_is_read(tmp_path):
    same = VQARAD(cache(tmp_path / "a", ("11", "x"), ("22", "x")), "test")
    assert len(same) == 1 and "files are the same: 11 is read" in same.report.notes[0]
    with_main = cache(tmp_path / "b", ("11", "x"), ("22", "y"), main="22\n")
    for root in (with_main, tmp_path / "b"):
        named = VQARAD(root, "test")
        assert [sample.question for sample in named.samples] == ["y test"]
        assert "22 is read, as refs/main says" in named.report.notes[0]
    differing = cache(tmp_path / "c", ("11", "x"), ("22", "y"))
    with pytest.raises(DataError, match=r"2 revisions that differ.*11, 22.*snapshots/22"):
        VQARAD(differing, "test")
    assert len(VQARAD(differing / "snapshots/11", "test")) == 1
    assert len(VQARAD(cache(tmp_path / "d", ("11", "x")), "test")) == 1


def test_a_cache_whose_files_were_cleared_says_so(tmp_path):
    root = cache(tmp_path, ("11", "x"))
    (root / "blobs/x-test").unlink()
    with pytest.raises(DataError, match=r"test-00000-of-00001\.parquet is a link to nothing"):
        VQARAD(root, "test")


def test_a_zip_beside_the_folder_it_was_unpacked_in_adds_nothing(tmp_path):
    root = gqa.write_release(tmp_path)
    zipped(root / "questions1.2", root / "questions1.2.zip")
    dataset = GQA(root, "train", "all")
    assert len(dataset) == dataset.report.read == 8
    (root / "questions1.2/train_all_questions/train_all_questions_1.json").unlink()
    assert len(GQA(root, "train", "all")) == 8  # the rest comes from the archive
    (root / "questions1.2.zip").rename(root / "elsewhere.zip")
    report = GQA(root, "train", "all").report
    assert report.kept == 8 and any("is another series, and is not" in n for n in report.notes)


def test_a_zip_of_chunks_elsewhere_is_a_copy(tmp_path):
    root = gqa.write_release(tmp_path)
    zipped(root / "questions1.2", root / "elsewhere.zip")
    dataset = GQA(root, "train", "all")
    assert len(dataset) == 8 and any("read once" in note for note in dataset.report.notes)


def test_gqa_chunks_that_are_missing_are_named(tmp_path):
    root = gqa.write_release(tmp_path)
    folder = root / "questions1.2/train_all_questions"
    assert any("2 chunks" in note for note in GQA(root, "train", "all").report.notes)
    shutil.move(folder / "train_all_questions_1.json", folder / "train_all_questions_2.json")
    with pytest.raises(MissingPartError, match=r"train_all_questions_1\.json"):
        GQA(root, "train", "all")


def test_files_of_one_name_that_differ_are_an_error_or_told(tmp_path):
    root = slake.write_release(tmp_path / "root")
    (root / "b").mkdir()
    shutil.copy(root / "train.json", root / "b/train.json")
    assert "b/train.json is the same as train.json, and read once" in SLAKE(root).report.notes
    rewrite(root / "b/train.json", lambda rows: rows[:1])
    assert "train.json is read; b/train.json differs, and is not" in SLAKE(root).report.notes
    (root / "a").mkdir()
    (root / "train.json").rename(root / "a/train.json")
    with pytest.raises(DataError, match=r"2 of train\.json that differ: a/train.*b/train"):
        SLAKE(root)
    (root / "a").rename(root / "slake-1.0")
    assert SLAKE(root).report.kept == 6


def test_names_for_the_same_file_are_told_where_both_are_there(tmp_path):
    root = slake.write_release(tmp_path)
    (root / "validation.json").write_text("[]")
    assert "validate.json is read, and validation.json is not" in SLAKE(root, "val").report.notes
    packed = root / "train.json.gz"
    packed.write_bytes(gzip.compress(b"[]"))
    notes = SLAKE(root, "train").report.notes
    assert "train.json is read, and train.json.gz beside it is not" in notes


def test_archives_with_one_file_that_differs_are_an_error(tmp_path):
    for name, content in (("a.zip", "[]"), ("b.zip", "[1]"), ("c.zip", "[]")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("train.json", content)
    with pytest.raises(DataError, match=r"two files of one name that differ: .*a\.zip.*b\.zip"):
        SLAKE(tmp_path, "train")
    (tmp_path / "b.zip").unlink()
    assert SLAKE(tmp_path, "train").report.read == 0


@pytest.mark.parametrize(
    ("kind", "release", "mirror", "split", "official"),
    [
        (SLAKE, slake.write_release, slake.write_mirror, "val", "validate.json"),
        (VQARAD, vqa_rad.write_release, vqa_rad.write_mirror, "test", "Public.json"),
        (PathVQA, path_vqa.write_release, path_vqa.write_mirror, "test", "test_qa.pkl"),
        (VQAv2, vqav2.write_release, vqav2.write_mirror, "val", "val2014_questions.json"),
        (GQA, gqa.write_release, gqa.write_mirror, "testdev", "testdev_balanced_questions.json"),
    ],
)
def test_the_release_is_read_and_not_the_mirror_beside_it(
    tmp_path, kind, release, mirror, split, official
):
    (tmp_path / "mirror").mkdir()
    release(tmp_path)
    mirror(tmp_path / "mirror")
    report = kind(tmp_path, split).report
    assert all(file.endswith(official) or "annotations" in file for file in report.files)
    assert any(f"{official} is read" in note and ".parquet" in note for note in report.notes)


def test_in_the_mevf_layout_the_file_is_the_split(tmp_path):
    root = vqa_rad.write_mevf(tmp_path)

    def as_released(rows):
        return [row | {"phrase_type": row["phrase_type"].removeprefix("test_")} for row in rows]

    rewrite(root / "testset.json", as_released)
    rewrite(root / "trainset.json", lambda rows: [row | {"phrase_type": "test_x"} for row in rows])
    sets = {split: VQARAD(root, split) for split in VQARAD.splits}
    assert len(sets["train"]) + len(sets["val"]) == 8 and len(sets["test"]) == 4
    assert not any("belongs to the t" in reason for reason in sets["test"].report.dropped)


def write_document(root, name, **more):
    row = {"questionId": "1", "question": "q?", "answers": ["a"], "image": pictures.cell(0)}
    pictures.write_parquet(root / name, [row | more])
    return root


def test_documents_are_read_from_what_the_hub_converts_and_not_from_another_set(tmp_path):
    ids = {"ucsf_document_id": "abcd0001", "ucsf_document_page_no": "1"}
    converted = write_document(tmp_path / "a", "default/validation/0000.parquet", **ids)
    assert len(DocVQA(converted, "val")) == 1
    both = write_document(tmp_path / "b", "DocVQA/validation-00000-of-00001.parquet", **ids)
    write_document(both, "InfographicVQA/validation-00000-of-00001.parquet", data_split="val")
    (sample,) = DocVQA(both, "val").samples
    assert sample.image_id == "abcd0001_1"
