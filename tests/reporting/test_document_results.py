"""Figures of a document study from outcomes made by hand: no training here."""

import numpy as np
import pytest

from qpriv.attacks.extraction_contexts import ERASED, CanarySet
from qpriv.datasets.documents.canaries import Curation
from qpriv.datasets.documents.fake_documents import fake_corpus
from qpriv.datasets.documents.preparation import prepare_canaries
from qpriv.reporting.document_results import BLOCKED, Groups, study_results, table
from qpriv.reporting.document_study import DocumentStudy, Outcome


@pytest.fixture(scope="module")
def canaries(tmp_path_factory):
    documents = fake_corpus(base=3, canaries={1: 4, 3: 2}, validation=2)
    training = documents.training()
    settings = Curation(max_train_count=99, max_template_share=1.0)
    folder = tmp_path_factory.mktemp("canaries")
    prepared = prepare_canaries(training, folder, settings, candidates=documents.canaries)
    return CanarySet(prepared.canaries, training)


def outcome(canaries, kind, erased, other=None, **changes):
    n = len(canaries.canaries)
    fields = {
        "kind": kind,
        "resolution": 0.5,
        "seed": 0,
        "train_loss": [1.0],
        "exact": {ERASED.name: list(erased), "no text": list(other or [False] * n)},
        "whole": [True] * n,
        "anls": [1.0, 0.0, 0.5, 0.5],
        "documents": ["a", "a", "b", "b"],
        "exact_match": 0.25,
        "abstained": 0.0,
        "banned": [False] * n,
        "beams": [False] * n,
        "ranks": [1] * n,
        "candidates": [4] * n,
    }
    return Outcome(**{**fields, **changes})


def named(results, name, **attack):
    wanted = {"model": "f", "resolution": 0.5, **attack}
    (found,) = [r for r in results if r.name == name and r.attack == wanted]
    return found


def test_memorised_is_what_the_baseline_does_not_say(canaries):
    n = len(canaries.canaries)
    personal = [canary.pii is not None for canary in canaries.canaries]
    said, known = [True] * n, [not flag for flag in personal]
    results = study_results(
        [outcome(canaries, "f", said), outcome(canaries, "f_G", known)], canaries
    )
    assert named(results, "extraction/extractable").value == n
    assert named(results, "extraction/memorised").value == sum(personal)
    assert named(results, "extraction/memorised_pii").value == sum(personal)
    assert named(results, "extraction/generalised_pii").value == 0
    unique = Groups.of(canaries).unique
    assert named(results, "extraction/memorised_unique_pii").value == unique.sum()
    once = named(results, "extraction/memorised", repetition=1).value
    assert 0 < once < sum(personal)
    assert named(results, "extraction/memorised").n == 6  # documents


def test_every_context_is_held_against_its_own_baseline(canaries):
    n = len(canaries.canaries)
    trained = outcome(canaries, "f", [True] * n, [True] * n)
    baseline = outcome(canaries, "f_G", [False] * n, [True] * n)
    results = study_results([trained, baseline], canaries)
    assert named(results, "extraction/memorised").value == n
    assert named(results, "extraction/memorised", context="no text").value == 0


def test_a_blocked_model_is_a_row_of_its_own(canaries):
    n = len(canaries.canaries)
    blocked = outcome(canaries, "f_EB", [False] * n, banned=[True] * n)
    results = study_results([blocked, outcome(canaries, "f_G", [False] * n)], canaries)
    mine = [r for r in results if r.defence == BLOCKED]
    plain = {r.name: r.value for r in mine if set(r.attack) == {"model", "resolution"}}
    assert plain["extraction/memorised"] == 0
    (adaptive,) = [r for r in mine if r.attack.get("decoding") == "abstention banned"]
    assert adaptive.value == n


def test_utility_has_an_interval_over_documents(canaries):
    n = len(canaries.canaries)
    (anls,) = [
        r for r in study_results([outcome(canaries, "f_G", [False] * n)], canaries)
        if r.name == "anls"
    ]  # fmt: skip
    assert (anls.value, anls.n) == (0.5, 2)


def test_the_table_has_a_row_for_each_model(canaries):
    n = len(canaries.canaries)
    rows = [outcome(canaries, kind, [False] * n) for kind in ("f", "f_G", "f_EB")]
    lines = table(study_results(rows, canaries)).splitlines()
    assert len(lines) == 5 and all(line.count("|") == lines[0].count("|") for line in lines)


def test_runs_of_a_pair_follow_each_other():
    names = [run.name for run in DocumentStudy(resolutions=(1.0, 0.5)).runs()]
    assert names[:2] == ["f-resolution=1-seed=0", "f_G-resolution=1-seed=0"]
    assert len(set(names)) == 6
    assert np.isclose(DocumentStudy().recipe.learning_rate, 8e-4)
