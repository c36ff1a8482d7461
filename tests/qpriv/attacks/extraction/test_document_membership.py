"""Document membership: what is known by heart needs little tuning, and blind scores know nothing."""

import numpy as np
import pytest
import torch

from qpriv.attacks.extraction.document_membership import (
    AGGREGATES,
    FEATURES,
    LAYERS,
    LayerTuning,
    attacked_layer,
    blind_document_scores,
    loss_scores,
    membership_features,
    membership_scores,
)
from qpriv.datasets.documents.fake_documents import DocumentMaker
from qpriv.errors import ModelError
from qpriv.metrics.membership import attack_report
from qpriv.models.documents.batch import by_page
from qpriv.models.documents.loading import load_document_model
from qpriv.models.documents.lora import add_document_lora
from qpriv.models.documents.wiring import tiny_paligemma, tiny_pix2struct
from qpriv.paradigms.documents import DocumentRecipe, fine_tune

TUNING = LayerTuning(steps=4)


@pytest.fixture(scope="module")
def documents():
    maker = DocumentMaker(seed=41)
    return [maker.questions(maker.document(f"d{number}"), "train") for number in range(10)]


@pytest.fixture(scope="module")
def victim(documents):
    """A reader that sees little of a page and has learned the first five documents by heart."""
    model = load_document_model("tiny", resolution=0.25)
    recipe = DocumentRecipe(epochs=20, batch_pages=5, noise=None, learning_rate=2e-3)
    fine_tune(model, by_page([s for d in documents[:5] for s in d]), recipe, seed=0)
    return model


@pytest.fixture(scope="module")
def features(victim, documents):
    return membership_features(victim, documents, TUNING)


def test_members_are_found_by_clusters_and_by_loss(features):
    assert features.shape == (10, len(FEATURES) * len(AGGREGATES))
    member = np.arange(10) < 5
    for scores in (membership_scores(features), loss_scores(features)):
        (auc,) = [r for r in attack_report(scores, member, threshold=0.0) if r.name == "auc"]
        assert auc.value > 0.9 and auc.n == 10 and auc.ci is not None


def test_the_victim_is_left_as_it_was(victim, documents):
    before = {name: p.detach().clone() for name, p in victim.named_parameters()}
    flags = [p.requires_grad for p in victim.parameters()]
    membership_features(victim, documents[:1], TUNING)
    assert all(torch.equal(before[name], p) for name, p in victim.named_parameters())
    assert [p.requires_grad for p in victim.parameters()] == flags
    assert all(p.grad is None or not p.grad.isnan().any() for p in victim.parameters())


def test_what_is_known_ends_at_once(victim, documents):
    lenient = LayerTuning(steps=4, tolerance=1e9)  # any change is small: two losses are compared
    (row,) = membership_features(victim, documents[:1], lenient)
    steps = row[FEATURES.index("steps") * len(AGGREGATES) :]
    assert set(steps.tolist()) == {2.0}


def test_clusters_have_no_say_in_what_the_features_mean():
    rng = np.random.default_rng(0)
    known, strange = rng.normal(0, 0.1, (20, 3)), rng.normal(3, 0.1, (20, 3))
    scores = membership_scores(np.concatenate([known, strange]))
    assert (scores[:20] > 0).all() and (scores[20:] < 0).all()


def test_blind_scores_are_means_over_a_documents_questions(documents):
    scores = blind_document_scores(documents[:5], documents[5:])
    assert scores.shape == (10,) and np.isfinite(scores).all()


def test_documents_that_differ_by_themselves_are_told_apart_blindly():
    # the members come from another generator of questions: a model need not be asked
    plain, specific = (DocumentMaker(seed=s, specific_share=s % 2) for s in (2, 3))
    sides = [
        [maker.questions(maker.document(f"{name}{n}"), "train") for n in range(12)]
        for name, maker in (("a", plain), ("b", specific))
    ]
    scores = blind_document_scores(*sides)
    report = attack_report(scores, np.arange(24) < 12)
    assert next(r.value for r in report if r.name == "auc") > 0.8


@pytest.mark.parametrize(
    "make", [tiny_pix2struct, tiny_paligemma, lambda: load_document_model("tiny")]
)
def test_every_family_has_its_layer_with_and_without_adapters(make):
    model = make()
    before = attacked_layer(model)
    add_document_lora(model, rank=2, alpha=4.0)
    assert attacked_layer(model) is before


def test_a_network_without_the_layer_is_refused(monkeypatch):
    monkeypatch.setitem(LAYERS, "donut", "none")
    with pytest.raises(ModelError, match="no feed-forward"):
        attacked_layer(load_document_model("tiny"))
