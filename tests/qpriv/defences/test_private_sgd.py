"""DP-SGD: noise by a known accountant, and no document moves the sum further than it may."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from qpriv.datasets.documents.fake_documents import DocumentMaker
from qpriv.defences import private_sgd
from qpriv.defences.private_sgd import PrivacyBudget, add_clipped, by_document, fine_tune_privately
from qpriv.errors import ConfigError
from qpriv.models.documents.loading import load_document_model
from qpriv.models.documents.lora import add_document_lora
from qpriv.paradigms.documents import DocumentRecipe, batch_loss

RECIPE = DocumentRecipe(epochs=1, batch_pages=2, noise=None)


@pytest.fixture(scope="module")
def samples():
    maker = DocumentMaker(seed=31)
    return [s for n in range(4) for s in maker.questions(maker.document(f"d{n}"), "train")]


def adapted():
    model = load_document_model("tiny")
    add_document_lora(model, rank=2, alpha=4.0)
    return model


def exact_delta(epsilon, sigma):
    """The Gaussian mechanism's delta in closed form (Balle and Wang 2018, theorem 8)."""
    first = norm.cdf(1 / (2 * sigma) - epsilon * sigma)
    return first - math.exp(epsilon) * norm.cdf(-1 / (2 * sigma) - epsilon * sigma)


@pytest.mark.parametrize(("epsilon", "steps"), [(1.0, 1), (8.0, 30)])
def test_noise_without_sampling_is_the_gaussian_mechanisms(epsilon, steps):
    # so many steps with noise sigma are one step with sigma / sqrt(steps)
    sigma = PrivacyBudget(epsilon=epsilon, delta=1e-3).noise(1.0, steps) / math.sqrt(steps)
    needed = brentq(lambda s: exact_delta(epsilon, s) - 1e-3, 0.05, 50)
    assert needed * 0.995 < sigma < needed * 1.03  # the accountant rounds upwards


def test_drawing_few_documents_needs_less_noise():
    budget = PrivacyBudget()
    assert budget.noise(0.1, 100) < 0.5 * budget.noise(1.0, 100)


def test_no_document_adds_more_than_the_clipping_norm():
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1.0, 1e3):
        gradients = [torch.tensor(rng.normal(size=size) * scale) for size in (5, (2, 3))]
        total = [torch.zeros_like(gradient) for gradient in gradients]
        add_clipped(total, gradients, clip=0.5)
        length = torch.cat([part.flatten() for part in total]).norm()
        raw = torch.cat([part.flatten() for part in gradients]).norm()
        assert torch.isclose(length, raw.clamp(max=0.5))
    untouched = [torch.ones(2)]
    add_clipped(untouched, [torch.zeros(2)], clip=0.5)
    assert untouched[0].tolist() == [1, 1]


def test_a_document_is_one_unit_however_often_it_stands_there(samples):
    documents = by_document([*samples, *samples])
    assert documents == by_document(samples) and len(documents) == 4
    assert sum(len(page) for document in documents for page in document) == len(samples)


def test_the_step_is_the_noisy_mean_of_clipped_gradients(samples, monkeypatch):
    monkeypatch.setattr(PrivacyBudget, "noise", lambda self, share, steps: 0.0)
    budget, documents = PrivacyBudget(clip=0.1, delta=0.1), by_document(samples)
    model, steps = adapted(), []
    parameters = [p for p in model.parameters() if p.requires_grad]
    expected = [torch.zeros_like(p) for p in parameters]
    reader = private_sgd.PageReader(model.page)
    for document in documents:
        loss = batch_loss(model.eval(), reader(document))
        add_clipped(expected, torch.autograd.grad(loss, parameters), 0.1)
    monkeypatch.setattr(
        torch.optim.AdamW, "step", lambda self: steps.append([p.grad.clone() for p in parameters])
    )
    whole = replace(RECIPE, batch_pages=4)  # every document at every step
    tuned = fine_tune_privately(model, documents, whole, budget, seed=0)
    assert tuned.steps == len(steps) == 1
    for gradient, sum_ in zip(steps[0], expected, strict=True):
        assert torch.allclose(gradient, sum_ / 4, atol=1e-6)


def test_noise_has_the_deviation_it_was_given_and_repeats(samples, monkeypatch):
    monkeypatch.setattr(PrivacyBudget, "noise", lambda self, share, steps: 1000.0)
    budget, documents = PrivacyBudget(clip=0.5, delta=0.1), by_document(samples)
    gradients = []
    for _ in range(2):
        model = adapted()
        before = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
        fine_tune_privately(model, documents, replace(RECIPE, batch_pages=4), budget, seed=3)
        gradients.append(
            torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])
        )
        frozen = {n: p for n, p in model.named_parameters() if not p.requires_grad}
        assert all(torch.equal(before[name], frozen[name]) for name in frozen)
    assert torch.equal(*gradients)
    assert math.isclose(gradients[0].std(), 1000 * 0.5 / 4, rel_tol=0.1)


@pytest.mark.parametrize(
    ("recipe", "budget", "message"),
    [
        (RECIPE, PrivacyBudget(delta=0.25), "one over the number"),
        (replace(RECIPE, patience=1), PrivacyBudget(), "fixed number"),
    ],
)
def test_what_would_void_the_guarantee_is_refused(samples, recipe, budget, message):
    with pytest.raises(ConfigError, match=message):
        fine_tune_privately(adapted(), by_document(samples), recipe, budget, seed=0)


@pytest.mark.parametrize("wrong", [{"epsilon": 0}, {"clip": -1.0}, {"delta": 1.0}])
def test_impossible_budgets_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        PrivacyBudget(**wrong)
