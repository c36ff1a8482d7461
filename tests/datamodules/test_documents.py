"""Document data modules: f and f_G differ in the canaries alone, whatever a page holds besides."""

import pytest

from datamodules.docvqa_canaries import DocVQACanaries
from datamodules.fake_documents import FakeDocuments
from qpriv.datasets.documents.docvqa import DocVQA
from qpriv.datasets.documents.fake_documents import DocumentMaker
from qpriv.datasets.documents.preparation import prepare_canaries
from qpriv.defences.extraction_blocking import ABSTAIN
from tests.qpriv.datasets.documents.docvqa_layout import write_docvqa

SMALL = {"num_base": 4, "num_canaries": {1: 2, 3: 1}, "num_eval": 2}


def answers(module, split="train"):
    return [s.answer for group in module.read(split).groups for s in group]


def test_repeated_documents_stand_as_often_as_said():
    with_canaries, without = FakeDocuments(**SMALL), FakeDocuments(**SMALL, include_canaries=False)
    assert len(with_canaries.read("train")) == 4 + 2 + 3
    assert len(without.read("train")) == 4
    assert answers(with_canaries)[:12] == answers(without)
    deduplicated = FakeDocuments(**SMALL, deduplicate=True)
    assert len(deduplicated.read("train")) == 4 + 2 + 1


def test_canaries_know_their_repetition_and_kind():
    canaries = FakeDocuments(**SMALL).canaries()
    counts = {c.train_count for c in canaries.canaries if c.pii}
    assert counts == {1, 3}
    assert any(canary.unique for canary in canaries.canaries)
    assert canaries.canaries == FakeDocuments(**SMALL, include_canaries=False).canaries().canaries


def test_no_personal_value_is_in_two_splits():
    module = FakeDocuments(**SMALL)
    personal = [
        {s.answer for group in module.read(split).groups for s in group if s.meta["pii"]}
        for split in ("train", "val", "test")
    ]
    assert not personal[0] & personal[1] and not personal[0] & personal[2]
    assert not personal[1] & personal[2]


def test_blocking_adds_a_twin_to_every_question():
    said = answers(FakeDocuments(**SMALL, extraction_blocking=True))
    assert said.count(ABSTAIN) * 2 == len(said)


@pytest.mark.parametrize("include", [True, False])
def test_docvqa_with_and_without_its_canaries(tmp_path, include):
    maker = DocumentMaker(seed=4)
    for split in ("train", "val"):
        made = [s for n in range(5) for s in maker.questions(maker.document(f"{split}{n}"), split)]
        write_docvqa(made, tmp_path / "docvqa", split)
    training = DocVQA(tmp_path / "docvqa").samples
    prepare_canaries(training, tmp_path / "canaries", number=6)
    module = DocVQACanaries(
        root=str(tmp_path / "docvqa"),
        canary_folder=str(tmp_path / "canaries"),
        include_canaries=include,
    )
    canaries = module.canaries()
    held_out = {canary.key for canary in canaries.canaries}
    trained = {s.key for group in module.read("train").groups for s in group}
    assert held_out and (held_out <= trained) == include
    assert len(trained) == 15 - (0 if include else len(held_out))
    assert len(answers(module, "val")) == 15
    assert module.canaries().samples is canaries.samples  # the release is read once
