"""One model of a document study: what it trains on, and its name."""

import pytest

from qpriv.attacks.extraction import document_run
from qpriv.attacks.extraction.document_run import Adapters, DocumentRun, run_corpus, train
from qpriv.attacks.extraction.outcome import paraphrase
from qpriv.defences.private_sgd import PrivacyBudget
from qpriv.errors import ConfigError, ModelError
from qpriv.paradigms.documents import DocumentRecipe

FEW = {"num_base": 2, "num_eval": 2, "num_canaries": {1: 2, 3: 1}}
WITHOUT_NOISE = DocumentRecipe(noise=None)
# by label: settings, and pages of two base documents, two canary documents once and one thrice
KINDS = {
    "f": ({}, 7),
    "f_G": ({"include_canaries": False}, 2),
    "f_EB": ({"extraction_blocking": True}, None),
    "f_dedup": ({"deduplicate": True}, 5),
    "f_clean": ({"recipe": WITHOUT_NOISE}, 7),
    "f_G_clean": ({"include_canaries": False, "recipe": WITHOUT_NOISE}, 2),
    "f_G_LoRA": ({"include_canaries": False, "adapters": Adapters()}, 2),
    "f_DP": ({"adapters": Adapters(), "budget": PrivacyBudget()}, 5),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return run_corpus(DocumentRun(**FEW), tmp_path_factory.mktemp("canaries"))


@pytest.mark.parametrize("label", KINDS)
def test_each_kind_trains_on_its_own_samples(corpus, label, monkeypatch):
    seen = {}

    def public(model, pages, recipe, seed, validation=()):
        seen.update(units=len(pages), recipe=recipe, adapters=model.network is not model.base)
        return type("", (), {"train_loss": (1.0,), "epoch": 0})

    def private(model, documents, recipe, budget, seed):
        public(model, documents, recipe, seed)
        return type("", (), {"train_loss": (1.0,), "noise": 2.0})

    monkeypatch.setattr(document_run, "fine_tune", public)
    monkeypatch.setattr(document_run, "fine_tune_privately", private)
    settings, pages = KINDS[label]
    run = DocumentRun(**FEW, **settings)
    _, training = train(run, corpus, seed=0)
    assert run.label == label
    if pages is None:  # a page and the erased page of each of its questions
        assert seen["units"] > 7 * 2
    else:
        assert seen["units"] == pages
    assert seen["adapters"] == (run.adapters is not None)
    rate = run.adapters.learning_rate if run.adapters else run.recipe.learning_rate
    assert seen["recipe"].learning_rate == rate
    assert (seen["recipe"].noise is None) == label.endswith("clean")
    assert (training.noise == 2.0) == (label == "f_DP")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": PrivacyBudget()}, "DP-SGD trains adapters"),
        (
            {
                "budget": PrivacyBudget(),
                "adapters": Adapters(),
                "recipe": DocumentRecipe(patience=2),
            },
            "early stopping would look at the data",
        ),
    ],
)
def test_what_cannot_go_together_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        DocumentRun(**settings)


def test_paraphrases_come_from_rules_a_table_or_a_model(tmp_path):
    (tmp_path / "table.json").write_text('{"who ?": "name the person ."}')
    assert paraphrase(str(tmp_path / "table.json"))("who ?") == "name the person ."
    assert paraphrase("rules")("who is it ?") != "who is it ?"
    with pytest.raises(ModelError, match="no_such_folder"):
        paraphrase(str(tmp_path / "no_such_folder"))
