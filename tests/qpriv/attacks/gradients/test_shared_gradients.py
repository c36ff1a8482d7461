"""Attacks on what is shared in training: updates of a client, gradients at the cuts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from qpriv.attacks.gradients.candidates import score_tail_answers
from qpriv.attacks.gradients.cuts import attack_cut
from qpriv.attacks.gradients.report import Knowledge, answer_ids, mean
from qpriv.attacks.gradients.sources import read_update, share_cuts, share_update, simulate_update
from qpriv.attacks.gradients.span_test import first_layer_span
from qpriv.attacks.gradients.updates import attack_updates, find_words
from qpriv.datasets.sample import VQASample
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.centralized import Encode
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.pruning.baselines import RandomPruning
from qpriv.pruning.policy import NoPruning, PruningPolicy
from qpriv.result import Result
from qpriv.split import Channel, Kind
from qpriv.split.layers import Tail
from tests.tiny_models import random_model, random_samples

RANK = 10
ANSWERS = ("red", "yes", "two", "blue triangle", "circle")


@dataclass
class Attacked:
    """A model in training."""

    model: VisionLanguageModel
    policy: PruningPolicy = field(default_factory=lambda: RandomPruning(0.9))
    channel: Channel = field(default_factory=lambda: Channel.supposed((2, 6)))
    recipe: LoraRecipe = field(default_factory=lambda: LoraRecipe(rank=RANK, learning_rate=1e-2))
    seed: int = 0

    @property
    def encode(self) -> Encode:
        return self.model.encode


@pytest.fixture(scope="module")
def victim() -> Attacked:
    """Return a model whose adapter has left its start, where every gradient of A is zero."""
    model = random_model()
    model.add_lora(rank=RANK)
    generator = torch.Generator().manual_seed(0)
    for name, value in model.named_parameters():
        if "lora_B" in name:
            value.data = torch.randn(value.shape, generator=generator) * 0.01
    return Attacked(model)


@pytest.fixture(scope="module")
def samples() -> list[VQASample]:
    """Return samples whose answers the questions do not tell."""
    drawn = np.random.default_rng(0).choice(len(ANSWERS), 40)
    return [
        replace(sample, answer=ANSWERS[n], answers=(ANSWERS[n],))
        for sample, n in zip(random_samples(40), drawn, strict=True)
    ]


@pytest.fixture(scope="module")
def knowledge(victim: Attacked, samples: list[VQASample]) -> Knowledge:
    return Knowledge.of(victim.model, samples[20:], len(ANSWERS))


def weights(victim: Attacked) -> list[torch.Tensor]:
    return [value.detach().clone() for value in victim.model.parameters()]


def by_name(figures: Sequence[Result]) -> dict[str, Result]:
    return {figure.name: figure for figure in figures}


def test_update_of_one_step_is_the_gradient_and_leaves_the_model_alone(
    victim: Attacked, samples: list[VQASample]
) -> None:
    before = weights(victim)
    flags = [value.requires_grad for value in victim.model.parameters()]
    transcript = share_update(
        victim.model, samples[:1], victim.policy, victim.encode, victim.recipe, train_head=True
    )
    shared, head = read_update(transcript, victim.recipe.learning_rate).split_head()
    simulated = simulate_update(victim.model, samples[:1], victim.policy, victim.encode)
    for own, (name, seen) in zip(simulated, shared.values.items(), strict=True):
        error = (own.double() - seen).square().mean().sqrt()
        assert error < 3 * shared.rounding[name], name
    assert list(head.values) == ["lm_head.weight"]
    assert all(torch.equal(a, b) for a, b in zip(before, weights(victim), strict=True))
    assert flags == [value.requires_grad for value in victim.model.parameters()]
    assert all(value.grad is None for value in victim.model.parameters())


def test_pruning_makes_the_span_test_feasible_again(
    victim: Attacked, samples: list[VQASample], knowledge: Knowledge
) -> None:
    """Thirty rows of rank 10: fewer than 64 patches and a question, more than 6 and a question."""
    words = {}
    for policy in (NoPruning(), RandomPruning(0.9)):
        pruned = replace(victim, policy=policy)
        transcript = share_update(victim.model, samples[:1], policy, victim.encode, victim.recipe)
        shared = read_update(transcript, victim.recipe.learning_rate)
        words[policy.label] = find_words(pruned, samples[0], shared, knowledge)
    off, pruned_words = words.values()
    assert not off.feasible and off.recall == 0 and off.rank == 3 * RANK
    assert pruned_words.feasible and pruned_words.precision == 1 and pruned_words.recall > 0.9
    assert pruned_words.f1 > pruned_words.guess


def test_span_of_one_projection_has_a_third_of_the_rows(
    victim: Attacked, samples: list[VQASample]
) -> None:
    transcript = share_update(
        victim.model, samples[:1], victim.policy, victim.encode, victim.recipe
    )
    shared = read_update(transcript, victim.recipe.learning_rate)
    assert first_layer_span(shared).feasible
    assert not first_layer_span(shared, ("q_proj",)).feasible


def test_updates_give_labels_and_words_away(
    victim: Attacked, samples: list[VQASample], knowledge: Knowledge
) -> None:
    figures = by_name(attack_updates(victim, samples[:8], knowledge, samples[20:22]))
    assert figures["label_accuracy_head"].value == 1.0
    assert figures["label_accuracy_lora"].value >= 0.75
    assert figures["label_accuracy_prior"].value < 0.75
    assert figures["span_feasible"].value == 1.0 and figures["span_precision"].value == 1.0
    assert figures["span_f1"].value > figures["span_f1_prior"].value
    for figure in figures.values():
        assert figure.n == 8 and figure.ci is not None
        assert figure.attack["gradient_norm"] == figures["gradient_norm"].value
        assert {"attacker", "active", "auxiliary", "access"} <= figure.attack.keys()
    prior = figures["label_accuracy_prior"].value
    assert figures["label_accuracy_head"].attack["prior"] == prior
    assert figures["label_accuracy_head"].attack["trained_head"]
    assert not figures["span_f1"].attack["trained_head"]
    assert "question" in str(figures["label_accuracy_lora"].attack["auxiliary"])


def test_adapter_before_its_first_step_hides_the_words(samples: list[VQASample]) -> None:
    fresh = random_model()
    fresh.add_lora(rank=RANK)
    transcript = share_update(
        fresh, samples[:1], RandomPruning(0.9), fresh.encode, LoraRecipe(learning_rate=1e-2)
    )
    span = first_layer_span(read_update(transcript, 1e-2))
    assert span.rank == 0 and not span.feasible


def test_gradient_into_the_tail_gives_the_label_away(
    victim: Attacked, samples: list[VQASample], knowledge: Knowledge
) -> None:
    before = weights(victim)
    figures = by_name(attack_cut(victim, samples[:10], knowledge, cut=6))
    assert figures["tail_label_accuracy"].value >= 0.9
    assert figures["tail_label_accuracy_prior"].value < 0.7
    assert {figure.attack["cut"] for figure in figures.values()} == {6}
    assert all(torch.equal(a, b) for a, b in zip(before, weights(victim), strict=True))


def test_gradient_of_another_sample_gives_the_other_label(
    victim: Attacked, samples: list[VQASample]
) -> None:
    first = samples[0]
    other = next(s for s in samples if s.answer != first.answer)
    texts = [replace(first, answer=a, answers=(a,)) for a in (first.answer, other.answer)]
    tokens = [answer_ids(victim.model, text) for text in texts]
    for sample, expected in ((first, 0), (other, 1)):
        transcript = share_cuts(
            victim.model, [sample], victim.policy, victim.encode, victim.channel
        )
        assert int(score_tail_answers(victim.model, transcript, 6, tokens).argmax()) == expected


@pytest.mark.parametrize("cuts", [(4,), (2, 6)])
def test_gradient_that_returns_tells_the_image(
    victim: Attacked, samples: list[VQASample], knowledge: Knowledge, cuts: tuple[int, ...]
) -> None:
    figures = by_name(
        attack_cut(
            replace(victim, channel=Channel.supposed(cuts)),
            samples[:4],
            knowledge,
            cuts[0],
            candidates=6,
        )
    )
    assert figures["image_top1"].value == figures["image_top1_activation"].value == 1.0
    assert figures["image_top1"].attack["prior"] == pytest.approx(1 / 6)


def test_server_of_a_split_learns_nothing_from_the_gradient_it_sends(
    victim: Attacked, samples: list[VQASample]
) -> None:
    """It is a function of the activation and the labels, which it was sent."""
    sample = samples[0]
    transcript = share_cuts(victim.model, [sample], victim.policy, victim.encode, Channel((4,)))
    (hidden,), (gradient,) = (transcript.rows(4, kind) for kind in (Kind.ACTIVATION, Kind.GRADIENT))
    answer = answer_ids(victim.model, sample)
    labels = torch.tensor([[-100] * (len(hidden) - len(answer)) + answer])
    leaf = hidden[None].clone().requires_grad_()
    tail = Tail(victim.model, 4)
    positions = torch.arange(len(hidden))[None]
    tail.loss(tail(leaf, torch.ones_like(labels), positions), labels).backward()
    torch.testing.assert_close(leaf.grad[0], gradient)


def test_knowledge_separates_words_from_the_template(
    victim: Attacked, knowledge: Knowledge
) -> None:
    tokenizer = victim.model.preprocessor.tokenizer
    words = {tokenizer.convert_ids_to_tokens(int(token)) for token in knowledge.template}
    assert {"user", "assistant", "<image>", "</s>"} <= words and "circle" not in words
    assert set(knowledge.answers) == set(ANSWERS)
    assert knowledge.guessed_answer("never asked ?") == knowledge.answers[0]


def test_mean_of_nothing_is_not_applicable() -> None:
    assert mean("span_precision", [float("nan")]).status == "not applicable"
