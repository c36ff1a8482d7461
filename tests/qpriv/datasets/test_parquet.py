import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qpriv.datasets import unpacking
from qpriv.datasets.path_vqa import PathVQA
from qpriv.datasets.vqav2 import VQAv2
from qpriv.errors import DataError
from tests.data import pictures
from tests.data.path_vqa import data as path_vqa
from tests.data.vqav2 import data as vqav2
from tests.qpriv.datasets.contract import zipped


@pytest.fixture
def file(tmp_path):
    return path_vqa.write_mirror(tmp_path) / "data/train-00000-of-00001.parquet"


def spoil(file, content):
    file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        PathVQA(file.parents[1], "train")
    return str(caught.value)


def test_broken_files_are_named(file):
    whole = file.read_bytes()
    assert "not a readable parquet file" in spoil(file, whole[: len(whole) // 2])
    assert "web page" in spoil(file, b"<html>")
    assert "LFS" in spoil(file, b"version https://git-lfs.github.com/spec/v1")
    assert "empty" in spoil(file, b"")
    assert file.name in spoil(file, b"PAR1 and nothing more")


def test_a_missing_column_is_named_with_those_there_are(file):
    pq.write_table(pq.read_table(file).drop_columns(["answer"]), file)
    with pytest.raises(DataError, match=r"no column answer .*image, question"):
        PathVQA(file.parents[1], "train")


def test_images_may_be_plain_bytes(file, tmp_path):
    table = pq.read_table(file)
    plain = pa.array([cell["bytes"] for cell in table["image"].to_pylist()])
    want = PathVQA(file.parents[1], "train")
    pixels = [sample.image.load().tobytes() for sample in want.samples]
    groups = [sample.group_id for sample in want.samples]
    place = table.schema.get_field_index("image")
    (tmp_path / "plain").mkdir()
    pq.write_table(table.set_column(place, "image", plain), tmp_path / "plain" / file.name)
    found = PathVQA(tmp_path / "plain", "train")
    assert [sample.image.load().tobytes() for sample in found.samples] == pixels
    assert [sample.group_id for sample in found.samples] == groups
    assert pixels[0] == pictures.picture(50).tobytes()


def test_an_image_that_is_none_is_named_by_row(file):
    rows = pq.read_table(file).to_pylist()
    rows[1]["image"]["bytes"] = b"not an image"
    pq.write_table(pa.Table.from_pylist(rows), file)
    with pytest.raises(DataError, match=r"not a readable image.*train-0.*row 1"):
        PathVQA(file.parents[1], "train")[1].image.load()


def test_a_mirror_in_an_archive(file, tmp_path):
    archive = zipped(file.parents[1], tmp_path / "mirror.zip")
    dataset = PathVQA(archive, "train")
    assert dataset[0].image.load().size == (12, 10)


def test_null_answers_of_a_test_split_are_no_answers(tmp_path):
    dataset = VQAv2(vqav2.write_mirror(tmp_path), "test-dev")
    assert [sample.answers for sample in dataset.samples] == [(), ()]
    assert dataset.report.kept == dataset.report.read == 2


def test_a_mirror_without_pictures_is_told_by_the_column(file):
    pq.write_table(pq.read_table(file).drop_columns(["image"]), file)
    with pytest.raises(DataError, match=r"no column image .*answer, question"):
        PathVQA(file.parents[1], "train")


@pytest.mark.parametrize(
    ("image", "told"),
    [
        (None, "no picture in the cell"),
        ({"bytes": None, "path": "a/1.jpg"}, "only the path 'a/1.jpg'"),
        ({"bytes": b"", "path": None}, "no picture in the cell"),
    ],
)
def test_a_cell_without_a_picture_says_so(tmp_path, image, told):
    rows = vqav2.write_mirror(tmp_path) / "data/validation-00000-of-00001.parquet"
    table = pq.read_table(rows).to_pylist()
    table[0]["image"] = image
    pq.write_table(pa.Table.from_pylist(table), rows)
    with pytest.raises(DataError, match=rf"{told} \(in .*row group 0, row 0\): .*embedded"):
        VQAv2(tmp_path, "val")[0].image.load()


@pytest.mark.parametrize("column", ["question", "answer"])
def test_a_null_in_a_row_is_an_error_with_its_place(file, column):
    rows = pq.read_table(file).to_pylist()
    rows[1][column] = None
    pq.write_table(pa.Table.from_pylist(rows), file)
    with pytest.raises(DataError, match=r"got `null`.*row group 0, row 1"):
        PathVQA(file.parents[1], "train")


def test_numbers_do_not_become_questions(file):
    table = pq.read_table(file)
    place = table.schema.get_field_index("question")
    numbers = pa.array(list(range(table.num_rows)))
    pq.write_table(table.set_column(place, "question", numbers), file)
    with pytest.raises(DataError, match="Expected `str`, got `int`"):
        PathVQA(file.parents[1], "train")


def test_a_column_that_unpacks_to_more_than_the_limit_is_refused(file, monkeypatch):
    rows = pq.read_table(file).to_pylist()
    rows[0]["question"] = "x" * 3_000_000
    pq.write_table(pa.Table.from_pylist(rows), file, compression="zstd", use_dictionary=False)
    assert len(PathVQA(file.parents[1], "train")) > 0
    monkeypatch.setattr(unpacking, "_FLOOR", 1 << 20)
    with pytest.raises(DataError, match=r"more than \d+ bytes.*row group 0, question"):
        PathVQA(file.parents[1], "train")
