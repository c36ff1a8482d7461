"""The page of a document study, and its runs by command on a few small documents."""

import re

import numpy as np
import pytest

from cli.main import main
from qpriv.datasets.documents.fake_documents import fake_corpus
from qpriv.errors import ModelError
from qpriv.metrics.memorisation import balanced_splits, scores
from qpriv.reporting import document_runs
from qpriv.reporting.document_outcome import Outcome, Training, paraphrase, read_outcomes
from qpriv.reporting.document_report import histograms, write_document_report
from qpriv.reporting.document_runs import train
from qpriv.reporting.document_scores import StudyScores
from qpriv.reporting.document_study import Adapters, DocumentRun, DocumentStudy, study_corpus
from qpriv.result import read_results


@pytest.fixture(scope="module", autouse=True)
def few_documents():
    """Nine canaries instead of 180."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "qpriv.reporting.document_study.fake_corpus",
            lambda base, validation: fake_corpus(base, {1: 2, 3: 1}, validation),
        )
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return study_corpus(DocumentStudy(base=2, validation=2), tmp_path_factory.mktemp("canaries"))


def outcome(corpus, kind, erased):
    n = len(corpus.canaries.canaries)
    return Outcome(
        kind, 0.5, 0, {"erased": erased}, [True] * n, [1.0, 0.5], ["a", "b"], 0.5, 0.0,
        [False] * n, [False] * n, [1] * n, [3] * n, Training((1.0,), 0),
    )  # fmt: skip


def made_up(corpus):
    n = len(corpus.canaries.canaries)
    first = [index == 0 for index in range(n)]
    outcomes = [outcome(corpus, "f", [True] * n), outcome(corpus, "f_G", first)]
    kept = balanced_splits([canary.group for canary in corpus.canaries.canaries], 4, seed=0)
    said = kept | np.array(first)  # the first is always said, the others where they were taught
    return outcomes, StudyScores(0.5, 0, 4, scores(said, kept), scores(said, kept))


def test_the_page_shows_histograms_of_all_of_memorised_and_of_generalised(corpus, tmp_path):
    outcomes, found = made_up(corpus)
    n = len(corpus.canaries.canaries)
    main_table = write_document_report(tmp_path, outcomes, [found], corpus.canaries)
    page = (tmp_path / "report.html").read_text()
    titles = re.findall(r"<figcaption><strong>(.*?)\.</strong>", page)
    assert [title.split(",")[0] for title in titles] == ["all canaries", "E - G", "G"]
    assert page.count("<svg") == 3
    assert f"{n - 1} canaries: {n - 1} with M_E from 0.8 and S_E from 1.0" in page
    assert "1 canaries: 1 with M_E from 0.0 and S_E from 1.8" in page
    assert "http" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert f"{n - 1} [" in main_table
    names = {result.name for result in read_results(tmp_path / "results.jsonl")}
    assert {"extraction/memorised", "extraction/memorised_for_certain"} <= names


def test_without_a_pair_all_canaries_alone_are_shown(corpus):
    _, found = made_up(corpus)
    assert len(list(histograms(found, []))) == 1


def test_a_study_by_command_is_resumable_and_writes_its_page(tmp_path, monkeypatch, capsys):
    words = ["study", "documents", "--out", str(tmp_path), "--resolutions", "1", "--epochs", "1"]
    words += ["--documents", "2", "2", "--kinds", "f", "f_G", "f_DP", "f_G_DP", "--patience", "0"]
    main(words)
    outcomes = {outcome.kind: outcome for outcome in read_outcomes(tmp_path)}
    assert set(outcomes) == {"f", "f_G", "f_DP", "f_G_DP"}
    assert outcomes["f_DP"].training.epsilon == 8 and outcomes["f_DP"].training.noise > 0.1
    assert set(outcomes["f"].defended) == {"ITP", "PR", "AR"}
    assert len(outcomes["f"].exact) == 16
    page = (tmp_path / "report.html").read_text()
    assert "f_DP at 1.0" in page and "under ITP" in page

    def trained_again(*given):
        raise AssertionError

    monkeypatch.setattr(document_runs, "train", trained_again)
    main(words)
    assert "report:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "kind", ["f", "f_G", "f_EB", "f_dedup", "f_clean", "f_G_clean", "f_G_LoRA", "f_DP"]
)
def test_each_kind_trains_on_its_own_samples(corpus, kind, monkeypatch):
    seen = {}

    def public(model, pages, recipe, seed, validation=()):
        seen.update(units=len(pages), recipe=recipe, adapters=model.network is not model.base)
        return type("", (), {"train_loss": (1.0,), "epoch": 0})

    def private(model, documents, recipe, budget, seed):
        public(model, documents, recipe, seed)
        return type("", (), {"train_loss": (1.0,), "noise": 2.0})

    monkeypatch.setattr(document_runs, "fine_tune", public)
    monkeypatch.setattr(document_runs, "fine_tune_privately", private)
    study = DocumentStudy(base=2, validation=2)
    _, training = train(study, DocumentRun(kind, 1.0, 0), corpus)
    # two base documents, two canary documents once and one three times
    pages = {"f": 7, "f_G": 2, "f_clean": 7, "f_G_clean": 2, "f_dedup": 5, "f_G_LoRA": 2, "f_DP": 5}
    if kind == "f_EB":  # a page and the erased page of each of its questions
        assert seen["units"] > 7 * 2
    else:
        assert seen["units"] == pages[kind]
    adapters = kind.endswith(("LoRA", "DP"))
    assert seen["adapters"] == adapters
    rate = Adapters().learning_rate if adapters else study.recipe.learning_rate
    assert seen["recipe"].learning_rate == rate
    assert (seen["recipe"].noise is None) == kind.endswith("clean")
    assert (training.noise == 2.0) == (kind == "f_DP")


def test_paraphrases_come_from_rules_a_table_or_a_model(tmp_path):
    (tmp_path / "table.json").write_text('{"who ?": "name the person ."}')
    assert paraphrase(str(tmp_path / "table.json"))("who ?") == "name the person ."
    assert paraphrase("rules")("who is it ?") != "who is it ?"
    with pytest.raises(ModelError, match="no_such_folder"):
        paraphrase(str(tmp_path / "no_such_folder"))
