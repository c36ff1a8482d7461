"""The releases as they come: OCR versions, mirrors, several pages, pickles."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from qpriv.datasets.documents.docvqa import DocVQA
from qpriv.datasets.documents.imdb import PFLDocVQA, convert_imdb
from qpriv.datasets.documents.multi_page import DUDE, MPDocVQA
from qpriv.datasets.documents.ocr import Tesseract, page_text, parse_ocr, parse_tesseract_tsv
from qpriv.errors import DataError

QUAD = [10, 20, 50, 20, 50, 30, 10, 30]
V2 = {
    "status": "Succeeded",
    "recognitionResults": [
        {
            "page": 1,
            "clockwiseOrientation": 359.96,
            "width": 1692,
            "height": 2245,
            "unit": "pixel",
            "lines": [
                {
                    "boundingBox": QUAD,
                    "text": "1/8/93",
                    "words": [{"boundingBox": QUAD, "text": "1/8/93", "confidence": "Low"}],
                }
            ],
        }
    ],
}
V3 = {
    "status": "succeeded",
    "analyzeResult": {
        "readResults": [
            {
                "page": 1,
                "angle": -0.3,
                "width": 1692,
                "height": 2245,
                "lines": [
                    {
                        "boundingBox": QUAD,
                        "text": "1/8/93",
                        "words": [{"boundingBox": QUAD, "text": "1/8/93", "confidence": 0.98}],
                    }
                ],
            }
        ]
    },
}
PIXPARSE = {
    "page": 1,
    "clockwise_orientation": 359.96,
    "width": 1692,
    "height": 2245,
    "unit": "pixel",
    "lines": [
        {
            "bounding_box": QUAD,
            "text": "1/8/93",
            "words": [{"bounding_box": QUAD, "text": "1/8/93", "confidence": 0.9}],
        }
    ],
}


def write_image(path, size=(169, 224), mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, 1 if mode == "1" else 200).save(path)


@pytest.mark.parametrize("document", [V2, V3, PIXPARSE], ids=["v2", "v3", "pixparse"])
def test_every_ocr_version_gives_the_same_words(document):
    (page,) = parse_ocr(json.dumps(document).encode(), "ocr.json")
    assert [(w.text, w.box) for w in page.words] == [("1/8/93", (10, 20, 50, 30))]
    assert (page.width, page.height) == (1692, 2245)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "neither Microsoft Read"),
        (json.dumps({**V2, "status": "Failed"}).encode(), "status 'Failed'"),
        (json.dumps({"lines": [{"text": "x", "boundingBox": [1]}], "width": 1, "height": 1})
         .encode(), "broken OCR page"),
    ],
)  # fmt: skip
def test_broken_ocr_is_named(content, message):
    with pytest.raises(DataError, match=message) as caught:
        parse_ocr(content, "xnbl0037_1.json")
    assert "xnbl0037_1.json" in str(caught.value)


def test_boxes_are_scaled_to_the_page_that_is_shipped(tmp_path):
    # OCR ran on 1692 pixels, the file has a tenth of them
    write_image(tmp_path / "documents/xnbl0037_1.png", mode="1")
    record = {
        "questionId": 337,
        "question": "what is the date mentioned in this letter?",
        "question_types": ["handwritten", "form"],
        "image": "documents/xnbl0037_1.png",
        "docId": 279,
        "ucsf_document_id": "xnbl0037",
        "ucsf_document_page_no": "1",
        "answers": ["1/8/93"],
        "data_split": "train",
    }
    dirt = [{**record, "questionId": 338, "answers": []}, {**record, "question": " "}]
    content = {"dataset_name": "SP-DocVQA", "dataset_version": "1.1", "data": [record, *dirt]}
    (tmp_path / "train_v1.0_withQT.json").write_text(json.dumps(content))
    (tmp_path / "spdocvqa_ocr").mkdir()
    (tmp_path / "spdocvqa_ocr/xnbl0037_1.json").write_text(json.dumps(V2))
    read = DocVQA(tmp_path)
    assert (read.report.kept, dict(read.report.dropped)) == (
        1,
        {"no gold answer": 1, "no question": 1},
    )
    image, text = page_text(read[0])
    assert image.size == (169, 224)
    assert text.words[0].box == (0, 1, 5, 3)


@pytest.mark.parametrize("with_ocr", [True, False])
def test_parquet_mirrors(tmp_path, with_ocr):
    write_image(tmp_path / "page.png")
    row = {
        "questionId": "337",
        "question": "what is the date?",
        "question_types": ["form"],
        "image": {"bytes": (tmp_path / "page.png").read_bytes(), "path": None},
        "docId": 279,
        "ucsf_document_id": "xnbl0037",
        "ucsf_document_page_no": "1",
        "answers": ["1/8/93"],
        "data_split": "train",
    }
    if with_ocr:
        row["ocr_results"] = PIXPARSE
    (tmp_path / "data").mkdir()
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "data/train-00000-of-00001.parquet")
    (sample,) = DocVQA(tmp_path).samples
    assert (sample.qid, sample.image_id) == ("337", "xnbl0037_1")
    if with_ocr:
        assert page_text(sample)[1].words[0].text == "1/8/93"
    else:
        with pytest.raises(DataError, match="no OCR for this page"):
            page_text(sample)


def test_several_pages_give_the_one_with_the_answer(tmp_path):
    for name in ("a_p0", "a_p1"):
        write_image(tmp_path / f"images/{name}.jpg")
    record = {
        "questionId": 1,
        "question": "who?",
        "doc_id": "a",
        "page_ids": ["a_p0", "a_p1"],
        "answers": ["Ann"],
        "answer_page_idx": 1,
        "data_split": "train",
    }
    (tmp_path / "train.json").write_text(
        json.dumps({"data": [record, {**record, "answer_page_idx": 5}]})
    )
    read = MPDocVQA(tmp_path)
    assert read[0].image_id == "a_p1"
    assert read[0].meta["pages"] == ("a_p0", "a_p1")
    assert read[0].image.load().size == (169, 224)
    assert dict(read.report.dropped) == {"answer page outside the document": 1}


def test_dude_keeps_what_cannot_be_answered(tmp_path):
    for page in (0, 1):
        write_image(tmp_path / f"images/train/doc_{page}.jpg")
    record = {
        "questionId": "doc_1",
        "question": "who?",
        "docId": "doc",
        "answers": ["Ann"],
        "answers_variants": ["Ann Lee"],
        "answers_page_bounding_boxes": [
            [{"left": 1, "top": 1, "width": 5, "height": 5, "page": 2}]
        ],
        "answer_type": "extractive",
        "data_split": "train",
    }
    unanswerable = {
        **record,
        "questionId": "doc_2",
        "answers": [],
        "answers_variants": [],
        "answers_page_bounding_boxes": [],
        "answer_type": "not-answerable",
    }
    rows = [record, unanswerable, {**record, "data_split": "val"}]
    (tmp_path / "2023-03-23_DUDE_gt_test_PUBLIC.json").write_text(json.dumps({"data": rows}))
    answerable, abstained = DUDE(tmp_path).samples
    assert answerable.answers == ("Ann", "Ann Lee")
    assert answerable.image_id == "doc_1"
    assert (abstained.answers, abstained.meta["answerable"]) == ((), False)


@pytest.fixture
def imdb(tmp_path):
    write_image(tmp_path / "images/provider7_3.jpg", size=(100, 200))
    row = {
        "question": "total?",
        "question_id": 5,
        "answers": "$12",
        "image_name": "provider7_3",
        "ocr_tokens": ["Total", "$12"],
        "ocr_normalized_boxes": np.array([[0.1, 0.1, 0.3, 0.2], [0.5, 0.1, 0.7, 0.2]]),
        "set_name": "train",
    }
    np.save(tmp_path / "imdb_train.npy", np.array([{"version": 1}, row], dtype=object))
    return tmp_path


def test_pickles_only_where_allowed(imdb):
    with pytest.raises(DataError, match="a pickle"):
        PFLDocVQA(imdb)
    (sample,) = PFLDocVQA(imdb, allow_pickle=True).samples
    assert (sample.answers, sample.group_id) == (("$12",), "provider7")
    assert page_text(sample)[1].words[1].box == (50, 20, 70, 40)


def test_converted_pickles_need_no_permission(imdb):
    assert convert_imdb(imdb / "imdb_train.npy", imdb / "imdb_train.json") == 1
    assert page_text(PFLDocVQA(imdb).samples[0])[1].words[1].box == (50, 20, 70, 40)


TSV = """level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext
1\t1\t0\t0\t0\t0\t0\t0\t100\t50\t-1\t
5\t1\t1\t1\t1\t1\t10\t10\t20\t8\t96.1\t"Ann
5\t1\t1\t1\t2\t1\t10\t30\t20\t8\t91.0\tLee
"""


def test_tesseract_table():
    page = parse_tesseract_tsv(TSV, 100, 50)
    assert [(w.text, w.box, w.line) for w in page.words] == [
        ('"Ann', (10, 10, 30, 18), 0),
        ("Lee", (10, 30, 30, 38), 1),
    ]


def test_tesseract_is_asked_for_by_name(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(DataError, match="apt-get install tesseract-ocr"):
        Tesseract()


DOCVQA = {
    "questionId": 1,
    "question": "what is the date?",
    "question_types": ["form"],
    "image": "documents/abcd0001_1.png",
    "docId": 1,
    "ucsf_document_id": "abcd0001",
    "answers": ["1/8/93"],
}
MP = {
    "questionId": 1, "question": "who?", "doc_id": "a", "page_ids": ["a_p0"], "answers": ["Ann"],
    "answer_page_idx": 0,
}  # fmt: skip
DUDE_ROW = {
    "questionId": "d_1", "question": "who?", "docId": "d", "answers": ["Ann"],
    "answers_page_bounding_boxes": [[{"page": 1}]], "answer_type": "extractive",
}  # fmt: skip
PFL = {"question_id": 5, "question": "total?", "answers": "$12", "image_name": "p7_3"}
SETS = {
    "docvqa": (DocVQA, "train_v1.0.json", DOCVQA),
    "mp": (MPDocVQA, "train.json", MP),
    "dude": (DUDE, "DUDE_gt.json", DUDE_ROW),
    "pfl": (PFLDocVQA, "imdb_train.json", PFL),
}


def read_rows(root, name, *changes):
    """Return a set whose file has its good record, and that record with each of the changes."""
    kind, file, record = SETS[name]
    rows = [record, *(record | change for change in changes)]
    (root / file).write_text(json.dumps(rows if name == "pfl" else {"data": rows}))
    return kind(root)


@pytest.mark.parametrize("name", SETS)
def test_what_says_nothing_is_dropped_by_name_and_never_becomes_a_word(tmp_path, name):
    changes = [{"question": None}, {"question": " "}, {"answers": [None, "", " "]}, {"answers": []}]
    found = read_rows(tmp_path, name, *changes, {"answers": [None, 12, "twelve"]})
    assert [sample.answers for sample in found.samples][1:] == [("12", "twelve")]
    assert found.report.dropped == {"no question": 2, "no gold answer": 2}
    assert found.report.empty_golds == 2
    assert found.report.repaired == {"answer that is null": 2, "answer that is a number": 1}
    assert found.report.read == found.report.kept + found.report.dropped.total() == 6


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, {"question": value}) for name in SETS for value in (7, ["a"], {"a": 1}, True)),
        *((name, {"answers": value}) for name in SETS for value in (5, {"a": 1}, [["a"]], [{}])),
        *((name, {next(iter(SETS[name][2])): None}) for name in SETS),  # the id
        ("docvqa", {"question_types": [1]}),
        ("docvqa", {"image": None}),
        ("docvqa", {"ucsf_document_id": {"a": 1}}),
        ("mp", {"page_ids": "a_p0"}),
        ("mp", {"page_ids": [None]}),
        ("mp", {"answer_page_idx": "0"}),
        ("dude", {"answers_page_bounding_boxes": [[{"page": None}]]}),
        ("dude", {"answers_variants": {"a": 1}}),
        ("pfl", {"ocr_tokens": "Total", "ocr_normalized_boxes": [[0, 0, 1, 1]]}),
        ("pfl", {"ocr_tokens": ["a", "b"], "ocr_normalized_boxes": [[0, 0, 1, 1]]}),
        ("pfl", {"ocr_tokens": ["a"], "ocr_normalized_boxes": [[0, 0, 1, 1e300]]}),
        ("pfl", {"ocr_tokens": ["a"], "ocr_normalized_boxes": [[0, 0, 1]]}),
        ("pfl", {"image_name": 3}),
    ],
)
def test_a_record_of_other_types_is_one_error_with_its_place(tmp_path, name, change):
    with pytest.raises(DataError, match=r"record 1\b") as caught:
        read_rows(tmp_path, name, change)
    assert SETS[name][1] in caught.value.where and caught.value.remedy


def test_a_null_is_no_name_and_a_string_no_list(tmp_path):
    nulls = {"ucsf_document_id": None, "docId": None, "question_types": None}
    found = read_rows(tmp_path, "docvqa", nulls, {"question_types": "form", "docId": 0})
    assert {sample.group_id for sample in found.samples} == {"abcd0001"}  # one page, one document
    kinds = [sample.meta["question_type"] for sample in found.samples]
    assert kinds == ["form", None, "form"]
    (tmp_path / "pfl").mkdir()
    assert read_rows(tmp_path / "pfl", "pfl", {"set_name": None})[1].split == "train"


def test_rows_of_other_splits_in_one_file_are_counted(tmp_path):
    found = read_rows(tmp_path, "dude", {"data_split": "val"}, {"data_split": "train"})
    assert (found.report.read, found.report.kept) == (3, 2)
    assert found.report.dropped == {"belongs to the val split": 1}
    assert {sample.split for sample in DUDE(tmp_path, "val").samples} == {"val"}


@pytest.mark.parametrize(
    "break_it",
    [
        lambda page: page | {"width": 0},
        lambda page: page | {"height": 1e300},
        lambda page: page | {"angle": "up"},
        lambda page: page | {"lines": None},
        lambda page: page | {"lines": [{"boundingBox": QUAD}]},
        lambda page: page | {"lines": [{"boundingBox": QUAD, "text": None}]},
        lambda page: page | {"lines": [{"boundingBox": [1e400] * 8, "text": "x"}]},
        lambda page: page | {"lines": [{"boundingBox": ["a"] * 8, "text": "x"}]},
        lambda page: page | {"lines": [{"words": [{"text": {}, "boundingBox": QUAD}]}]},
    ],
)
def test_ocr_that_could_not_stand_on_a_page_is_one_error(break_it):
    page = V3["analyzeResult"]["readResults"][0]
    document = {"status": None, "analyzeResult": {"readResults": [break_it(page)]}}
    for content in (json.dumps(document).encode(), json.dumps(document).encode("utf-8-sig")):
        with pytest.raises(DataError, match=r"(broken OCR page|not JSON).*ocr\.json"):
            parse_ocr(content, "ocr.json")


@pytest.mark.parametrize("content", ["[" * 10_000, '{"a":' * 10_000, "caf\xe9"])
def test_ocr_that_is_no_json_is_one_error(content):
    with pytest.raises(DataError, match=r"ocr\.json"):
        parse_ocr(content.encode("latin-1"), "ocr.json")


@pytest.mark.parametrize(
    "rows",
    [
        [{"version": 1}, PFL | {"question": 3}],
        [{"version": 1}, None],
        [{"version": 1}, PFL | {"answers": np.array([{"a": 1}], dtype=object)}],
    ],
)
def test_rows_of_a_pickle_are_checked_as_well(tmp_path, rows):
    np.save(tmp_path / "imdb_train.npy", np.array(rows, dtype=object))
    with pytest.raises(DataError, match=r"imdb_train\.npy, record 1"):
        PFLDocVQA(tmp_path, allow_pickle=True)


@pytest.mark.parametrize("cut", [0, 4, 60, 200])
def test_a_damaged_pickle_is_one_error(imdb, cut):
    path = imdb / "imdb_train.npy"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"imdb_train\.npy"):
        PFLDocVQA(imdb, allow_pickle=True)
