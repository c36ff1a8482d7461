"""K splits: resumable one by one, each canary in exactly half of them."""

from dataclasses import replace

import numpy as np
import pytest

from qpriv.datasets.documents.canaries import group_of
from qpriv.errors import ConfigError
from qpriv.metrics.memorisation import balanced_splits, scores
from qpriv.reporting import document_scores
from qpriv.reporting.document_scores import StudyScores, read_scores, run_splits, score_results
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


def test_a_split_that_dies_leaves_the_others_and_nothing_half_done(
    trainings, tmp_path, monkeypatch
):
    train = document_scores.fine_tune

    def dies(*given):
        train(*given)
        if len(trainings) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(document_scores, "fine_tune", dies)
    with pytest.raises(KeyboardInterrupt):
        run_splits(STUDY, 4, 1.0, tmp_path)
    assert sorted(p.name[:7] for p in tmp_path.glob("split=*")) == ["split=0", "split=1"]
    assert read_scores(tmp_path) == []  # unfinished
    monkeypatch.setattr(document_scores, "fine_tune", train)
    run_splits(STUDY, 4, 1.0, tmp_path)
    assert len(trainings) == 3 + 2 and trainings[3] == trainings[2]
    (found,) = read_scores(tmp_path)
    assert (found.resolution, found.splits) == (1.0, 4)


def test_other_settings_do_not_mix_in_one_folder(trainings, tmp_path):
    run_splits(STUDY, 2, 1.0, tmp_path)
    with pytest.raises(ConfigError, match="other settings"):
        run_splits(replace(STUDY, base=3), 2, 1.0, tmp_path)


def test_scores_have_intervals_and_a_count_of_what_is_certain():
    kept = balanced_splits(list(range(6)), 20, seed=0)
    said = kept & (np.arange(6) < 2)  # the first two canaries come out where they were taught
    found = StudyScores(0.5, 0, 20, scores(said, kept), scores(kept | True, kept))
    results = {
        (r.name, r.attack["page"]): r for r in score_results(found, ["a", "a", "b", "b", "c", "c"])
    }
    assert results["extraction/memorisation", "erased"].value == pytest.approx(1 / 3)
    assert results["extraction/memorisation", "erased"].ci is not None
    certain = results["extraction/memorised_for_certain", "erased"]
    assert (certain.value, certain.n) == (2, 3)
    assert results["extraction/memorised_for_certain", "whole"].value == 0
    assert results["extraction/simplicity", "whole"].value == 2


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
