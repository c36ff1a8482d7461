"""Every published label rule where it holds, and where it does not."""

from collections import Counter
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from qpriv.attacks.gradients.label_recovery import (
    HeadGradient,
    answer_tokens,
    bias_label,
    counted_labels,
    numerical_rank,
    pair_product_label,
    recover_labels,
    row_sum_label,
    sign_labels,
    single_features,
    smallest_bias_labels,
    smallest_entry_labels,
    supported_labels,
)
from qpriv.errors import ConfigError

from .classifiers import ACTIVATIONS, CLASSES, LeNet, digits

PUBLIC = slice(1500, 1756)
"""Images of the attacker, for mean probabilities."""


def paper_rule(weight: Tensor) -> int | None:
    """Return iDLG's equation 3 word by word: the row with no positive product with another."""
    products = weight.double() @ weight.double().T
    alone = [
        i for i in range(len(weight)) if all(products[i, j] <= 0 for j in range(CLASSES) if j != i)
    ]
    return alone[0] if len(alone) == 1 else None


RULES = {
    "row sum": lambda g: row_sum_label(g.weight),
    "pair product": lambda g: pair_product_label(g.weight),
    "paper": lambda g: paper_rule(g.weight),
    "bias": lambda g: bias_label(g.bias),
    "sign": lambda g: next(iter(sign_labels(g.bias))),
    "smallest entry": lambda g: next(iter(smallest_entry_labels(g.weight, 1))),
}


@cache
def single_accuracy(activation: str, normalise: bool) -> dict[str, float]:
    """Return how often each rule is right about one image, over 100 images of 10 networks."""
    images, labels = digits()
    hits: Counter[str] = Counter()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for trial in range(100):
            if trial % 10 == 0:
                net = LeNet(activation, normalise=normalise)
            row = torch.randint(len(images), (1,))
            gradient = net.head_gradient(images[row], labels[row])
            hits.update(name for name, rule in RULES.items() if rule(gradient) == labels[row])
    return {name: hits[name] / 100 for name in RULES}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("rule", ["pair product", "paper", "bias", "sign"])
def test_rule_holds_for_one_sample_whatever_the_features(
    rule: str, normalise: bool, activation: str
) -> None:
    assert single_accuracy(activation, normalise)[rule] == 1.0


@pytest.mark.parametrize("activation", ["sigmoid", "relu"])
def test_published_code_holds_for_features_that_are_not_negative(activation: str) -> None:
    assert single_accuracy(activation, False)["row sum"] == 1.0
    assert single_accuracy(activation, False)["smallest entry"] == 1.0


@pytest.mark.parametrize(
    ("activation", "normalise"), [("tanh", False), *((name, True) for name in ACTIVATIONS)]
)
def test_published_code_fails_behind_tanh_or_a_norm(activation: str, normalise: bool) -> None:
    assert single_accuracy(activation, normalise)["row sum"] < 0.9


def test_label_and_features_of_a_confident_model_are_still_read() -> None:
    """Logits as far apart as 40: products of such gradients are below any fixed tolerance."""
    generator = torch.Generator().manual_seed(0)
    for label in range(CLASSES):
        logits = torch.randn(1, CLASSES, generator=generator)
        logits[0, label] += 40
        features = torch.randn(1, 64, generator=generator)
        logits.requires_grad_()
        cross_entropy(logits, torch.tensor([label])).backward()
        gradient = HeadGradient(logits.grad.T @ features, logits.grad[0])
        assert pair_product_label(gradient.weight) == label
        torch.testing.assert_close(single_features(gradient), features[0])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_smoothed_labels_are_read_off_the_bias(smoothing: float) -> None:
    images, labels = digits()
    torch.manual_seed(0)
    net = LeNet("relu")
    for row in range(20):
        loss = cross_entropy(net(images[row : row + 1]), labels[row : row + 1],
                             label_smoothing=smoothing)  # fmt: skip
        assert bias_label(torch.autograd.grad(loss, net.head.bias)[0]) == labels[row]


# -- batches

BATCHES = {"4 distinct": 4, "4": 4, "8": 8, "32": 32}

BATCH_RULES = {
    "sign": lambda g, size, p: sign_labels(g.bias),
    "smallest bias": lambda g, size, p: smallest_bias_labels(g.bias, size),
    "smallest entry": lambda g, size, p: smallest_entry_labels(g.weight, size),
    "count": lambda g, size, p: counted_labels(g.bias, size, p),
    "support": supported_labels,
    "best": lambda g, size, p: recover_labels(g, size, nonnegative=True, probabilities=p),
}


def draw(size: int, distinct: bool, labels: Tensor) -> Tensor:
    if not distinct:
        return torch.randint(1400, (size,))
    rows = [(labels[:1400] == c).nonzero()[:, 0] for c in torch.randperm(CLASSES)[:size]]
    return torch.stack([own[torch.randint(len(own), ())] for own in rows])


@cache
def networks(trained: bool) -> list[tuple[LeNet, Tensor]]:
    """Return some ReLU networks with their mean probabilities over the attacker's images."""
    made = []
    for seed in range(3):
        torch.manual_seed(seed)
        net = LeNet("relu")
        if trained:
            fit(net)
        with torch.no_grad():
            made.append((net, net(digits()[0][PUBLIC]).softmax(dim=1).mean(dim=0)))
    return made


@cache
def batch_recall(trained: bool, batch: str) -> dict[str, float]:
    """Return the share of labels found, repeats counted, over 45 batches."""
    images, labels = digits()
    totals: dict[str, float] = dict.fromkeys(BATCH_RULES, 0.0)
    with torch.random.fork_rng():
        for net, public in networks(trained):
            torch.manual_seed(0)
            for _ in range(15):
                rows = draw(BATCHES[batch], "distinct" in batch, labels)
                gradient = net.head_gradient(images[rows], labels[rows])
                truth = Counter(labels[rows].tolist())
                for name, rule in BATCH_RULES.items():
                    if len(rows) <= CLASSES or not name.startswith("smallest"):
                        found = rule(gradient, len(rows), public)
                        totals[name] += (found & truth).total() / len(rows)
    return {name: total / 45 for name, total in totals.items()}


def fit(net: LeNet) -> None:
    images, labels = digits()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(120):
        rows = torch.randint(1400, (64,))
        optimizer.zero_grad()
        cross_entropy(net(images[rows]), labels[rows]).backward()
        optimizer.step()


@pytest.mark.parametrize("rule", BATCH_RULES)
def test_distinct_labels_of_an_untrained_model_are_found_by_every_rule(rule: str) -> None:
    assert batch_recall(False, "4 distinct")[rule] == 1.0


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("rule", ["count", "best"])
def test_counts_are_exact_for_an_untrained_model(rule: str, batch: str) -> None:
    assert batch_recall(False, batch)[rule] == 1.0


@pytest.mark.parametrize("batch", ["4", "8"])
@pytest.mark.parametrize("rule", ["sign", "smallest bias", "smallest entry"])
def test_rules_for_distinct_labels_miss_repeated_ones(rule: str, batch: str) -> None:
    assert batch_recall(False, batch)[rule] < 0.95


def test_counts_go_astray_on_a_trained_model_and_negative_entries_do_not() -> None:
    recall = batch_recall(True, "4")
    assert recall["count"] < 0.6 < recall["smallest entry"] <= recall["support"]
    assert batch_recall(True, "4 distinct")["smallest entry"] > 0.95


@pytest.mark.parametrize("batch", BATCHES)
def test_the_rule_that_is_chosen_is_the_best_on_a_trained_model(batch: str) -> None:
    recall = batch_recall(True, batch)
    assert recall["best"] >= max(recall.values()) - 0.02


def test_counts_need_the_probabilities_of_images_and_not_of_noise() -> None:
    images, labels = digits()
    torch.manual_seed(0)
    net, _ = networks(True)[0]
    recall: Counter[str] = Counter()
    for inputs, name in ((images[PUBLIC], "images"), (torch.rand(256, 1, 28, 28), "noise")):
        with torch.no_grad():
            public = net(inputs).softmax(dim=1).mean(dim=0)
        for start in range(0, 640, 32):
            rows = slice(start, start + 32)
            gradient = net.head_gradient(images[rows], labels[rows])
            found = counted_labels(gradient.bias, 32, public)
            recall[name] += (found & Counter(labels[rows].tolist())).total()
    assert recall["images"] > 1.5 * recall["noise"]


def test_batch_larger_than_the_classes_is_refused_by_rules_that_cannot_repeat() -> None:
    bias = torch.zeros(CLASSES)
    for rule in (smallest_bias_labels, lambda b, n: smallest_entry_labels(b[:, None], n)):
        with pytest.raises(ConfigError, match="repeat a class"):
            rule(bias, CLASSES + 1)


def test_what_a_gradient_does_not_tell_is_refused() -> None:
    gradient = HeadGradient(torch.tensor([[1.0], [-1.0]]))
    with pytest.raises(ConfigError, match="2 classes without bias"):
        recover_labels(gradient)
    with pytest.raises(ConfigError, match="cannot be counted"):
        recover_labels(gradient, 4)
    with pytest.raises(ConfigError, match="without the gradient of the bias"):
        single_features(gradient)
    with pytest.raises(ValueError, match="weight is"):
        HeadGradient(torch.zeros(3, 4), torch.zeros(2))


# -- a language model's head


@pytest.mark.parametrize("confidence", [0.0, 12.0])
def test_answer_tokens_are_read_off_a_head_behind_a_norm_without_bias(confidence: float) -> None:
    generator = torch.Generator().manual_seed(0)
    head = torch.randn(50, 32, generator=generator)
    for trial in range(20):
        tokens = torch.randperm(49, generator=generator)[: 1 + trial % 3] + 1
        labels = torch.cat([tokens, torch.zeros(1, dtype=torch.long)])  # 0 ends every answer
        states = torch.randn(len(labels), 32, generator=generator) + 0.5
        states = states / states.square().mean(dim=1, keepdim=True).sqrt()
        logits = states @ head.T / 32**0.5
        logits[range(len(labels)), labels] += confidence
        errors = (logits.softmax(dim=1) - torch.eye(50)[labels]) / len(labels)
        assert answer_tokens(errors.T @ states, end_token=0) == set(tokens.tolist())


def test_rank_is_told_from_the_rounding_of_stored_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(32, 5, generator=generator) @ torch.randn(5, 64, generator=generator)
    rounded = matrix + 1e-3 * torch.randn(32, 64, generator=generator)
    assert numerical_rank(matrix) == numerical_rank(rounded, noise=1e-3) == 5
    assert numerical_rank(rounded) == 32
    assert numerical_rank(torch.zeros(4, 4)) == 0
