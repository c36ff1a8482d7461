"""Figures of a document study from outcomes made by hand: no training here."""

import numpy as np
import pytest

from qpriv.attacks.extraction_contexts import ERASED, CanarySet
from qpriv.datasets.documents.canaries import Curation
from qpriv.datasets.documents.fake_documents import fake_corpus
from qpriv.datasets.documents.preparation import prepare_canaries
from qpriv.reporting.document_outcome import Defended, Membership, Outcome, Training
from qpriv.reporting.document_results import Groups, study_results
from qpriv.reporting.document_study import DEFENCES, DocumentStudy
from qpriv.reporting.document_tables import document_tables, table


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
    mine = [r for r in results if r.defence == DEFENCES["f_EB"]]
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


def test_generalised_may_be_the_union_over_seeds(canaries):
    n = len(canaries.canaries)
    rows = [outcome(canaries, "f", [True] * n)]
    rows += [
        outcome(canaries, "f_G", [index == seed for index in range(n)], seed=seed)
        for seed in (0, 1)
    ]
    assert named(study_results(rows, canaries), "extraction/memorised").value == n - 1
    union = study_results(rows, canaries, union=True)
    assert named(union, "extraction/memorised", baselines=2).value == n - 2


def test_each_stopping_rule_is_a_row_with_its_own_baseline(canaries):
    n = len(canaries.canaries)
    rows = [
        outcome(canaries, kind, [said] * n, stopping=stopping, training=Training((1.0,), 3))
        for kind, stopping, said in (
            ("f", "fixed", True),
            ("f_G", "fixed", False),
            ("f", "patience 2", True),
            ("f_G", "patience 2", True),
        )
    ]
    results = study_results(rows, canaries)
    assert named(results, "extraction/memorised").value == n
    assert named(results, "extraction/memorised", stopping="patience 2").value == 0
    assert named(results, "trained_epoch", stopping="patience 2").value == 3
    assert len(table(results).splitlines()) == 2 + 4


@pytest.mark.parametrize(("kind", "baseline"), [("f_LoRA", "f_G_LoRA"), ("f_DP", "f_G_DP")])
def test_adapters_are_held_against_adapters(canaries, kind, baseline):
    n = len(canaries.canaries)
    rows = [outcome(canaries, kind, [True] * n), outcome(canaries, "f_G", [True] * n)]
    assert not [r for r in study_results(rows, canaries) if r.name == "extraction/memorised"]
    rows.append(outcome(canaries, baseline, [False] * n))
    results = study_results(rows, canaries)
    assert named(results, "extraction/memorised", model=kind).value == n


def test_privacy_budgets_are_reported(canaries):
    n = len(canaries.canaries)
    private = Training((1.0,), 0, noise=1.5, epsilon=8.0, delta=1e-3)
    results = study_results([outcome(canaries, "f_DP", [False] * n, training=private)], canaries)
    budget = {"model": "f_DP", "delta": 1e-3, "protected": "document"}
    assert named(results, "privacy/epsilon", **budget).value == 8
    assert named(results, "privacy/noise", **budget).value == 1.5


def test_a_defence_is_compared_question_by_question(canaries):
    n = len(canaries.canaries)
    quiet = Defended({ERASED.name: [False] * n}, [0.5, 0.0, 0.5, 0.0], 0.25)
    rows = [
        outcome(canaries, "f", [True] * n, defended={"PR": quiet}),
        outcome(canaries, "f_G", [False] * n, defended={"PR": quiet}),
        outcome(canaries, "f_EB", [index == 0 for index in range(n)], anls=[1.0, 0.5, 0.5, 0.5]),
    ]
    results = study_results(rows, canaries)
    figures = {(r.name, r.defence): r for r in results if set(r.attack) == {"model", "resolution"}}
    assert figures["anls_change", "PR"].value == -0.25
    assert figures["extraction/memorised_change", "PR"].value == -n
    assert figures["extraction/memorised", "PR"].value == 0
    assert figures["extraction/false_abstention", "PR"].value == 0.25
    assert figures["anls_change", "extraction blocking"].value == 0.125
    assert figures["extraction/memorised_change", "extraction blocking"].value == 1 - n
    assert figures["extraction/memorised_change", "PR"].ci[1] < 0


def test_what_of_the_memorised_comes_out_elsewhere_is_counted_apart(canaries):
    n = len(canaries.canaries)
    half = [index % 2 == 0 for index in range(n)]
    rows = [outcome(canaries, "f", half, [True] * n), outcome(canaries, "f_G", [False] * n)]
    results = study_results(rows, canaries)
    assert named(results, "extraction/memorised", context="no text").value == n
    assert named(results, "extraction/memorised_and_said", context="no text").value == sum(half)


def test_membership_of_documents_has_a_control(canaries):
    n = len(canaries.canaries)
    names = [f"d{index}" for index in range(8)]
    member = [index < 4 for index in range(8)]
    perfect = Membership(
        {"clusters": [1.0 if inside else -1.0 for inside in member], "blind": [0.0] * 8},
        member,
        names,
    )
    rows = [outcome(canaries, kind, [False] * n, membership=perfect) for kind in ("f", "f_G")]
    results = study_results(rows, canaries)
    name = "attack/document_membership/auc"
    found = {(r.attack["model"], r.attack["method"]): r for r in results if r.name == name}
    assert found["f", "clusters"].value == 1 and found["f", "blind"].value == 0.5
    assert found["f", "clusters"].n == 8
    assert (
        found["f", "clusters"].attack["members"],
        found["f_G", "clusters"].attack["members"],
    ) == (True, False)


def test_tables_show_what_was_measured_and_nothing_else(canaries):
    n = len(canaries.canaries)
    rows = [outcome(canaries, kind, [True] * n) for kind in ("f", "f_G")]
    tables = {each.key: each for each in document_tables(study_results(rows, canaries))}
    times = sorted({canary.train_count for canary in canaries.canaries})
    assert tables["repetitions"].columns == tuple(map(str, times))
    assert "privacy" not in tables and "changes" not in tables
    assert all(len(cells) == len(t.columns) for t in tables.values() for _, cells in t.rows)


def test_runs_of_a_pair_follow_each_other():
    study = DocumentStudy(resolutions=(1.0, 0.5))
    names = [run.name for run in study.runs()]
    assert names[:2] == ["f-resolution=1-seed=0", "f_G-resolution=1-seed=0"]
    assert len(set(names)) == 2 * len(study.kinds)
    kinds = ("f", "f_G", "f_DP")
    both = [run.name for run in DocumentStudy((1.0,), kinds=kinds, patiences=(None, 3)).runs()]
    assert both == [
        "f-resolution=1-seed=0",
        "f_G-resolution=1-seed=0",
        "f_DP-resolution=1-seed=0",
        "f-resolution=1-seed=0-patience=3",
        "f_G-resolution=1-seed=0-patience=3",
    ]
    assert np.isclose(DocumentStudy().recipe.learning_rate, 8e-4)
