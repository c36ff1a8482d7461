"""What a document model memorised, from outcomes made by hand: no training here."""

import pytest

from qpriv.attacks.extraction.contexts import ERASED, CanarySet
from qpriv.attacks.extraction.document_run import DocumentRun, Training
from qpriv.attacks.extraction.memory import Groups, check_baselines, compared, run_results
from qpriv.attacks.extraction.outcome import Defended, Membership, Outcome
from qpriv.datasets.documents.canaries import Curation
from qpriv.datasets.documents.fake_documents import fake_corpus
from qpriv.datasets.documents.preparation import prepare_canaries
from qpriv.errors import ConfigError


@pytest.fixture(scope="module")
def canaries(tmp_path_factory):
    documents = fake_corpus(base=3, canaries={1: 4, 3: 2}, validation=2)
    training = documents.training()
    settings = Curation(max_train_count=99, max_template_share=1.0)
    folder = tmp_path_factory.mktemp("canaries")
    prepared = prepare_canaries(training, folder, settings, candidates=documents.canaries)
    return CanarySet(prepared.canaries, training)


def outcome(canaries, model, erased, other=None, **changes):
    n = len(canaries.canaries)
    fields = {
        "model": model,
        "trained": "_G" not in model,
        "resolution": 0.5,
        "seed": 0,
        "defence": "none",
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
    baseline = outcome(canaries, "f_G", [not flag for flag in personal])
    results = run_results(outcome(canaries, "f", [True] * n), canaries, [baseline])
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
    results = run_results(trained, canaries, [baseline])
    assert named(results, "extraction/memorised").value == n
    assert named(results, "extraction/memorised", context="no text").value == 0


def test_without_a_baseline_nothing_is_called_memorised(canaries):
    results = run_results(outcome(canaries, "f", [True] * len(canaries.canaries)), canaries)
    assert {"anls", "exact_match"} <= {result.name for result in results}
    assert not [result for result in results if "memorised" in result.name]


def test_a_blocked_model_is_also_asked_with_its_abstention_banned(canaries):
    n = len(canaries.canaries)
    blocked = outcome(
        canaries, "f_EB", [False] * n, banned=[True] * n, defence="extraction blocking"
    )
    results = run_results(blocked, canaries, [outcome(canaries, "f_G", [False] * n)])
    assert {result.defence for result in results} == {"extraction blocking"}
    plain = {r.name: r.value for r in results if set(r.attack) == {"model", "resolution"}}
    assert plain["extraction/memorised"] == 0
    (adaptive,) = [r for r in results if r.attack.get("decoding") == "abstention banned"]
    assert adaptive.value == n


def test_utility_has_an_interval_over_documents(canaries):
    results = run_results(outcome(canaries, "f_G", [False] * len(canaries.canaries)), canaries)
    anls = named(results, "anls", model="f_G")
    assert (anls.value, anls.n) == (0.5, 2) and anls.ci is not None


def test_generalised_is_the_union_over_several_baselines(canaries):
    n = len(canaries.canaries)
    trained = outcome(canaries, "f", [True] * n)
    baselines = [
        outcome(canaries, "f_G", [index == seed for index in range(n)], seed=seed)
        for seed in (0, 1)
    ]
    one, both = (run_results(trained, canaries, given) for given in (baselines[:1], baselines))
    assert named(one, "extraction/memorised").value == n - 1
    assert named(both, "extraction/memorised", baselines=2).value == n - 2


def test_the_stopping_rule_is_part_of_the_setting(canaries):
    n = len(canaries.canaries)
    stopped = {"stopping": "patience 2", "training": Training((1.0,), 3)}
    trained, baseline = (outcome(canaries, model, [True] * n, **stopped) for model in ("f", "f_G"))
    results = run_results(trained, canaries, [baseline])
    assert named(results, "extraction/memorised", stopping="patience 2").value == 0
    assert named(results, "trained_epoch", stopping="patience 2").value == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trained": True}, "was trained on the canaries"),
        ({"resolution": 0.25}, "has resolution 0.25"),
        ({"stopping": "patience 3"}, "stops by another rule"),
        ({"whole": [True]}, "was asked for other canaries"),
    ],
)
def test_a_baseline_of_another_training_is_refused(canaries, changes, message):
    said = [False] * len(canaries.canaries)
    other = outcome(canaries, "f_G", said, **changes)
    with pytest.raises(ConfigError, match=message):
        check_baselines(DocumentRun(resolution=0.5), canaries, [other])


def test_privacy_budgets_are_reported(canaries):
    n = len(canaries.canaries)
    private = Training((1.0,), 0, noise=1.5, epsilon=8.0, delta=1e-3)
    results = run_results(outcome(canaries, "f_DP", [False] * n, training=private), canaries)
    budget = {"model": "f_DP", "delta": 1e-3, "protected": "document"}
    assert named(results, "privacy/epsilon", **budget).value == 8
    assert named(results, "privacy/noise", **budget).value == 1.5


def test_a_defence_is_compared_question_by_question(canaries):
    n = len(canaries.canaries)
    quiet = Defended({ERASED.name: [False] * n}, [0.5, 0.0, 0.5, 0.0], 0.25)
    plain = outcome(canaries, "f", [True] * n, defended={"PR": quiet})
    baseline = outcome(canaries, "f_G", [False] * n, defended={"PR": quiet})
    blocked = outcome(
        canaries,
        "f_EB",
        [index == 0 for index in range(n)],
        anls=[1.0, 0.5, 0.5, 0.5],
        defence="extraction blocking",
    )
    results = run_results(plain, canaries, [baseline])
    results += run_results(blocked, canaries, [baseline], compared(plain, [baseline]))
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
    trained = outcome(canaries, "f", half, [True] * n)
    results = run_results(trained, canaries, [outcome(canaries, "f_G", [False] * n)])
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
    results = [
        result
        for model in ("f", "f_G")
        for result in run_results(
            outcome(canaries, model, [False] * n, membership=perfect), canaries
        )
        if result.name == "attack/document_membership/auc"
    ]
    found = {(r.attack["model"], r.attack["method"]): r for r in results}
    assert found["f", "clusters"].value == 1 and found["f", "blind"].value == 0.5
    assert found["f", "clusters"].n == 8
    assert found["f", "clusters"].attack["members"] is True
    assert found["f_G", "clusters"].attack["members"] is False
