"""Canaries: found everywhere, erased exactly, rejected with a reason, resumable."""

import csv

import numpy as np
import pytest
from PIL import Image

from qpriv.datasets.documents.canaries import Curation, Reason, judge
from qpriv.datasets.documents.erasing import erase, region, untouched_outside
from qpriv.datasets.documents.fake_documents import DocumentMaker
from qpriv.datasets.documents.matching import locate
from qpriv.datasets.documents.page import KnownText, PageText, Word, quad_of
from qpriv.datasets.documents.pii import PIIKind, classify, read_overrides
from qpriv.datasets.documents.preparation import (
    load_canaries,
    prepare_canaries,
    read_judged,
    write_review_table,
)
from qpriv.datasets.documents.review import write_review_sheet
from qpriv.datasets.documents.training_counts import TrainingCounts
from qpriv.datasets.sample import AnswerType, ArrayImage, VQASample
from qpriv.errors import DataError


def page_of(*lines, columns=()):
    """A page whose words are ten pixels high and six pixels a letter wide."""
    words = []
    for number, line in enumerate(lines):
        left = 10 if number not in columns else 300
        for text in line.split():
            box = (left, 20 * number, left + 6 * len(text), 20 * number + 10)
            words.append(Word(text, quad_of(box), number))
            left += 6 * len(text) + 6
    return PageText(600, 400, tuple(words))


def sample_of(page, answer, question="what is it ?", answers=(), **meta):
    rng = np.random.default_rng(0)
    pixels = rng.integers(180, 240, (round(page.height), round(page.width), 3), dtype=np.uint8)
    return VQASample(
        dataset="Fake",
        split="train",
        qid="1",
        image_id="p",
        group_id="p",
        image=ArrayImage(pixels),
        question=question,
        answer=answer,
        answers=(answer, *answers),
        answer_type=AnswerType.OPEN,
        meta={"text": KnownText(page), **meta},
    )


def judged(page, answer, settings=None, **fields):
    sample = sample_of(page, answer, **fields)
    return judge(sample, TrainingCounts.of([sample]), settings or Curation())


@pytest.mark.parametrize(
    ("answers", "lines", "expected"),
    [
        (["Smith"], ["Mr Smith, of"], [(1,)]),
        (["Ann Lee"], ["by Ann", "Lee"], [(1, 2)]),
        (["741-5000"], ["call 741", "-5000"], [(1, 2)]),
        (["R. J. Reynolds"], ["R.J. Reynolds", "and REYNOLDS R.J. Reynolds"], [(0, 1), (4, 5)]),
        (["don\u2019t"], ["they Don't"], [(1,)]),
        (["1993", "'93"], ["in 1993 or 93"], [(1,), (3,)]),
        (["17"], ["born 1917"], []),
        (["17"], ["1 7"], []),
        (["17"], ["page 17"], [(1,)]),
        ([""], ["x"], []),
    ],
)
def test_every_place_is_found(answers, lines, expected):
    assert [match.words for match in locate(answers, page_of(*lines))] == expected


def test_part_of_a_longer_word_is_marked():
    (match,) = locate(["12/8/76"], page_of("Date:12/8/76"))
    assert match.partial


def test_one_misread_letter_is_found_as_such():
    (match,) = locate(["John Smithson"], page_of("Jchn Smithson"))
    assert match.fuzzy and match.words == (0, 1)


def test_answers_go_on_in_their_column():
    # the engine reads: left 1, right 1, left 2, right 2
    lines = [("Ann", 10, 0), ("Foo", 300, 0), ("Lee", 10, 20), ("Bar", 300, 20)]
    words = [
        Word(text, quad_of((x, y, x + 20, y + 10)), number)
        for number, (text, x, y) in enumerate(lines)
    ]
    matches = locate(["Ann Lee"], PageText(600, 400, tuple(words)))
    assert [match.words for match in matches] == [(0, 2)]


@pytest.mark.parametrize("fill", ["white", "paper", "black"])
def test_erasing_changes_its_boxes_and_nothing_else(fill):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (80, 120, 3), np.uint8))
    # a word that leans, as on a skewed scan
    word = Word("x", (20, 30, 60, 20, 62, 30, 22, 40))
    erased = erase(image, [word], fill)
    assert untouched_outside(image, erased, [word])
    inside = region(image.size, [word])
    assert np.unique(np.asarray(erased)[inside], axis=0).shape[0] == 1
    assert inside.mean() < 0.15


def test_a_box_over_the_edge_is_erased_as_far_as_it_goes():
    image = Image.new("RGB", (50, 50), "grey")
    erased = erase(image, [Word("x", quad_of((40, 40, 90, 90)))])
    assert np.asarray(erased)[45:, 45:].min() == 255


@pytest.mark.parametrize(
    ("reason", "page", "answer", "fields"),
    [
        (Reason.YES_NO, page_of("yes"), "Yes", {}),
        (Reason.NO_LETTERS, page_of("a"), "a", {}),
        (Reason.EMPTY_OCR, page_of(), "Ann Lee", {}),
        (Reason.NOT_FOUND, page_of("nobody"), "Ann Lee", {}),
        (Reason.OCR_ERROR, page_of("Jchn Smithson"), "John Smithson", {}),
        (Reason.IN_QUESTION, page_of("Ann"), "Ann", {"question": "is Ann in ?"}),
        (Reason.SEQUENCE, page_of("3", "4", "5"), "4 ", {}),
        (Reason.SUM, page_of("10 20 30", "Total 60"), "60", {}),
        (Reason.REPEATED, page_of("Brent Hess", "b.hess@acme.org"), "Brent Hess", {}),
        (Reason.OUTSIDE, PageText(60, 40, (Word("Ann", quad_of((70, 0, 90, 9))),)), "Ann", {}),
        (Reason.WHOLE_PAGE, PageText(60, 40, (Word("Ann", quad_of((0, 0, 59, 39))),)), "Ann", {}),
    ],
)  # fmt: skip
def test_each_rule_rejects(reason, page, answer, fields):
    if reason is Reason.SEQUENCE:
        answer, page = "14", page_of("13", "14", "15")
    assert judged(page, answer, **fields).reason is reason


def test_a_good_canary_knows_its_kind_boxes_and_hashes():
    canary = judged(page_of("Name: Ann Lee", "Ann Lee"), "Ann Lee", question="who signed ?")
    assert canary.reason is None
    assert (canary.pii, canary.rule) == (PIIKind.PERSON, "question: who")
    assert len(canary.quads) == 4
    assert canary.page_hash != canary.erased_hash


def test_what_can_still_be_read_is_rejected():
    page = page_of("Ann Lee")
    assert judged(page, "Ann Lee", Curation(verify=lambda image: page)).reason is Reason.LEGIBLE
    assert judged(page, "Ann Lee", Curation(verify=lambda image: page_of("x"))).reason is None


def test_what_the_model_cannot_spell_is_rejected():
    settings = Curation(spellable=lambda question, answer: "1" not in answer)
    assert judged(page_of("A1"), "A1", settings).reason is Reason.UNSPELLABLE


def test_frequent_and_usual_answers_are_rejected():
    page = page_of("Acme")
    training = [sample_of(page, "Acme", f"what is the firm of {n} ?") for n in range(30)]
    counts = TrainingCounts.of(training)
    assert judge(training[0], counts, Curation()).reason is Reason.FREQUENT
    assert judge(training[0], counts, Curation(max_train_count=50)).reason is Reason.TEMPLATE


def test_uniqueness_counts_answers_and_pages():
    page = page_of("Ann Lee", "Bob")
    training = [sample_of(page, "Ann Lee"), sample_of(page, "ann lee"), sample_of(page, "Bob")]
    counts = TrainingCounts.of(training)
    counts.count_pages([page, page_of("call Ann Lee now")], {"annlee", "bob"})
    assert (counts.answers["annlee"], counts.pages["annlee"], counts.pages["bob"]) == (2, 2, 1)


@pytest.mark.parametrize(
    ("question", "answer", "kind"),
    [
        ("what is the e-mail ?", "ann@acme.org", PIIKind.CONTACT),
        ("", "www.acme.com", PIIKind.URL),
        ("", "14 March 1987", PIIKind.TIME),
        ("what is the serial number ?", "2085786423", PIIKind.ID),
        ("how many tickets were sold ?", "88134", None),
        ("what is the heading ?", "R. J. Reynolds", None),
        ("where does he live ?", "1025 Connecticut Avenue, N.W.", PIIKind.PLACE),
        ("what is the religion ?", "Catholic", PIIKind.NRP),
        ("", "Mary Smith", PIIKind.PERSON),
        ("", "Ohio", PIIKind.PLACE),
    ],
)
def test_kinds(question, answer, kind):
    assert classify(question, answer).kind is kind


def test_a_person_overrules_the_rules(tmp_path):
    path = tmp_path / "kinds.csv"
    path.write_text("key,pii\nFake/train/1,person\n")
    assert read_overrides(path)["Fake/train/1"].kind is PIIKind.PERSON
    path.write_text("key,pii\nFake/train/1,persn\n")
    with pytest.raises(DataError, match=r"persn.*line 2"):
        read_overrides(path)


@pytest.fixture(scope="module")
def training():
    maker = DocumentMaker(seed=9)
    return [s for n in range(12) for s in maker.questions(maker.document(f"d{n}"), "train")]


def test_a_killed_preparation_goes_on(tmp_path, training):
    whole = prepare_canaries(training, tmp_path / "whole")
    part = tmp_path / "part"
    prepare_canaries(training, part, number=10, seed=1)
    path = part / "canaries.jsonl"
    path.write_bytes(path.read_bytes()[:-30])  # killed while writing the last line
    resumed = prepare_canaries(training, part)
    assert {c.key: c for c in resumed.canaries} == {c.key: c for c in whole.canaries}
    assert len(read_judged(path)) == len(training)
    assert len(whole.canaries) > 20


def test_known_kinds_come_from_the_generator(tmp_path, training):
    kinds = {sample.key: sample.meta["pii"] for sample in training}
    for canary in prepare_canaries(training, tmp_path).canaries:
        assert canary.pii == kinds[canary.key]


def test_review(tmp_path, training):
    kept = prepare_canaries(training, tmp_path).canaries
    table = write_review_table(kept, tmp_path)
    sheet = write_review_sheet(kept, {s.key: s for s in training}, tmp_path, Curation())
    assert sheet.read_text().count("<img") == 2 * len(kept)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows[0]["keep"], rows[1]["pii"] = "no", "url"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    reviewed = load_canaries(tmp_path)
    assert len(reviewed) == len(kept) - 1
    assert {c.key: c.pii for c in reviewed}[rows[1]["key"]] is PIIKind.URL
