"""K splits: resumable one by one, each canary in exactly half of them."""

import pytest

from qpriv.datasets.documents.canaries import group_of
from qpriv.errors import ConfigError
from qpriv.reporting import document_scores
from qpriv.reporting.document_scores import run_splits
from qpriv.reporting.document_study import DocumentStudy

STUDY = DocumentStudy(base=2, validation=2)


@pytest.fixture
def trainings(monkeypatch):
    """The training sets of all splits, in place of their trainings."""
    seen = []

    def record(model, groups, recipe, seed):
        seen.append({group_of(sample) for group in groups for sample in group})

    monkeypatch.setattr(document_scores, "fine_tune", record)
    monkeypatch.setattr(
        "qpriv.reporting.document_study.fake_corpus",
        lambda base, validation, make=document_corpus(): make(base, validation),
    )
    return seen


def document_corpus():
    from qpriv.datasets.documents.fake_documents import fake_corpus

    return lambda base, validation: fake_corpus(base, {1: 3}, validation)


def test_a_killed_split_costs_itself_alone(trainings, tmp_path):
    first = run_splits(STUDY, 4, 1.0, tmp_path)
    assert len(trainings) == 4
    (tmp_path / "split=2-of-4-resolution=1-seed=0.json").unlink()
    second = run_splits(STUDY, 4, 1.0, tmp_path)
    assert len(trainings) == 5 and trainings[4] == trainings[2]
    assert (first.whole.inside == second.whole.inside).all()


def test_each_canary_is_taught_in_half_of_the_splits(trainings, tmp_path):
    result = run_splits(STUDY, 4, 1.0, tmp_path)
    counts = [sum(group in seen for seen in trainings) for group in set().union(*trainings)]
    assert set(counts) <= {2, 4}  # canaries in half, base documents in all
    assert counts.count(2) >= 6
    # the same model stands for every split, so nothing depends on what was taught
    assert (result.whole.memorisation == 0).all()


def test_odd_numbers_are_refused(trainings, tmp_path):
    with pytest.raises(ConfigError, match="even"):
        run_splits(STUDY, 3, 1.0, tmp_path)
    assert not trainings
