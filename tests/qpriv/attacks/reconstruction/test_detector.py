"""SplitGuard against the published formula over lists."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from qpriv.attacks.reconstruction.detector import SplitGuard, with_random_answers
from qpriv.errors import ConfigError


def published(fakes, first, second, sharpness: float = 5.0, exponent: float = 2.0) -> float:
    """Return the score from the lists of gradients, as the reference computes it."""

    def between(a, b) -> float:
        return float(np.arccos(np.dot(a / np.linalg.norm(a), b / np.linalg.norm(b))))

    means = [sum(vectors) / len(vectors) for vectors in (fakes, first, second)]
    sizes = [sum(map(np.linalg.norm, vectors)) / len(vectors) for vectors in (fakes, first, second)]
    regular, size = (means[1] + means[2]) / 2, (sizes[1] + sizes[2]) / 2
    total = abs(sizes[0] - size) + abs(sizes[1] - sizes[2])
    told = between(means[0], regular) * abs(sizes[0] - size) / total
    told -= between(means[1], means[2]) * abs(sizes[1] - sizes[2]) / total
    return float((1 / (1 + math.exp(-sharpness * told))) ** exponent)


def watched(guard: SplitGuard, batches: int, honest: bool) -> tuple[list, list]:
    """Show a guard gradients of a server, and return those of fake and of regular batches."""
    generator = np.random.default_rng(1)
    fakes, regular = [], []
    for number in range(batches):
        fake = guard.sends_fake()
        gradient = generator.normal(size=30) + 1
        if fake and honest:
            gradient = 3 * generator.normal(size=30) - 2
        guard.observe(torch.from_numpy(gradient).reshape(5, 6), fake=fake)
        if number >= guard.start:
            (fakes if fake else regular).append(gradient)
    return fakes, regular


def test_score_is_the_published_one() -> None:
    guard = SplitGuard(start=0, fake_share=0.2)
    halves: list[list] = [[], [], []]
    add = [mean.add for mean in guard._means]
    for mean, half, record in zip(guard._means, halves, add, strict=True):

        def both(vector, half=half, record=record) -> None:
            half.append(vector.numpy())
            record(vector)

        mean.add = both  # type: ignore[method-assign]
    watched(guard, 80, honest=True)
    assert guard.score == pytest.approx(published(*halves), rel=1e-9)
    assert guard.num_fakes == len(halves[0]) > 5


def test_honest_servers_score_high_and_deaf_ones_low() -> None:
    honest, deaf = SplitGuard(), SplitGuard()
    fakes, regular = watched(honest, 200, honest=True)
    watched(deaf, 200, honest=False)
    assert honest.score > 0.9 > 0.7 > deaf.score
    assert 0.04 < len(fakes) / (len(fakes) + len(regular)) < 0.2


def test_nothing_is_told_before_both_kinds_were_seen() -> None:
    guard = SplitGuard(start=1000)
    watched(guard, 50, honest=True)
    assert guard.score is None and guard.num_fakes == 0


def test_guard_is_carried_over_and_repeatable() -> None:
    whole, first, second = (SplitGuard(seed=4) for _ in range(3))
    watched(whole, 60, honest=True)
    watched(first, 60, honest=True)
    assert whole.score == first.score
    second.load_state_dict(first.state_dict())
    assert second.score == first.score
    assert [second.sends_fake() for _ in range(50)] == [first.sends_fake() for _ in range(50)]


def test_gradients_that_never_differ_are_no_proof_of_honesty() -> None:
    guard = SplitGuard(start=0, fake_share=0.5)
    for _ in range(40):
        guard.observe(torch.ones(4), fake=guard.sends_fake())
    assert guard.score == 0.25


def test_every_sample_gets_anothers_answer() -> None:
    from tests.tiny_models import random_samples

    samples = [
        replace(s, answer=str(n), answers=(str(n),)) for n, s in enumerate(random_samples(5))
    ]
    for seed in range(5):
        changed = with_random_answers(samples, torch.Generator().manual_seed(seed))
        assert all(new.answer != old.answer for new, old in zip(changed, samples, strict=True))
        assert sorted(s.answer for s in changed) == sorted(s.answer for s in samples)
        assert [s.question for s in changed] == [s.question for s in samples]
    with pytest.raises(ValueError, match="one sample"):
        with_random_answers(samples[:1], torch.Generator())


def test_impossible_shares_are_refused() -> None:
    with pytest.raises(ConfigError, match="fake_share"):
        SplitGuard(fake_share=1.0)
