"""Fake documents: exact boxes, unique personal values, the official layout."""

import json

import numpy as np
import pytest

from qpriv.datasets.documents.docvqa import DocVQA
from qpriv.datasets.documents.fake_documents import DocumentMaker
from qpriv.datasets.documents.ocr import page_text
from qpriv.errors import ConfigError
from tests.qpriv.datasets.documents.docvqa_layout import write_docvqa


@pytest.fixture(scope="module")
def documents():
    maker = DocumentMaker(seed=3)
    made = [maker.document(f"d{number}") for number in range(40)]
    return made, [sample for document in made for sample in maker.questions(document, "train")]


def test_boxes_hold_all_the_ink(documents):
    # a page with its words whited out must be bare paper, but for the rule and the frame
    for document in documents[0][:10]:
        pixels = document.drawn.pixels.astype(int)
        ink = pixels < np.median(pixels) - 60
        for word in document.drawn.page.words:
            left, top, right, bottom = word.box
            ink[top : bottom + 1, left - 1 : right + 1] = False
        ink[[0, -1]] = ink[:, [0, -1]] = False
        full_rows = ink.mean(axis=1) > 0.5
        ink[full_rows] = False
        assert ink.sum() == 0


def test_personal_values_are_never_repeated(documents):
    values = [s.answer for s in documents[1] if s.meta["pii"]]
    assert len(values) == len(set(values)) > 40


def test_answers_stand_in_their_boxes(documents):
    for sample in documents[1][:20]:
        (box,) = sample.relevant_boxes
        words = [w for w in sample.meta["text"].load().words if w.box[1] == box[1]]
        assert sample.answer in " ".join(word.text for word in words)


def test_seed_fixes_everything():
    first, second = (DocumentMaker(seed=5).document("d") for _ in range(2))
    assert (first.drawn.pixels == second.drawn.pixels).all()
    assert [f.value for f in first.fields] == [f.value for f in second.fields]


def test_larger_pages_with_more_fields():
    maker = DocumentMaker(seed=1, size=(260, 300), font_size=14, num_fields=7)
    document = maker.document("d")
    assert document.drawn.pixels.shape == (260, 300)
    assert len(maker.questions(document, "train")) == 7


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"kinds": ("iban",)}, "unknown kind"), ({"num_fields": 9}, "9 fields of 7")],
)
def test_impossible_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        DocumentMaker(**settings)


def test_official_layout_is_read_back(tmp_path, documents):
    samples = documents[1][:9]
    path = write_docvqa(samples, tmp_path, "train")
    assert json.loads(path.read_text())["data"][0]["image"].startswith("documents/")
    read = DocVQA(tmp_path, "train")
    assert [s.question for s in read.samples] == [s.question for s in samples]
    assert read.report.read == read.report.kept == 9
    assert read.report.images == 3
    image, text = page_text(read[0])
    assert (np.asarray(image) == samples[0].image.array).all()
    assert text.text == samples[0].meta["text"].load().text
