"""Which tokens a query keeps under each query policy."""

import torch

from qpriv.attacks.irrelevant_questions import ask
from qpriv.attacks.query import QueryAccess, ResampledPruning, through
from qpriv.defences import GaussianNoise
from qpriv.pruning.baselines import RandomPruning
from qpriv.pruning.policy import NoPruning
from qpriv.split import Channel
from tests.callbacks.victims import TinyVictim
from tests.tiny_models import random_model, random_samples


def test_each_query_policy_keeps_the_tokens_it_is_named_for() -> None:
    model, samples = random_model(), random_samples(6)
    features = model.encode(model.preprocessor(samples))
    policy = RandomPruning(0.5)
    masks = {
        query: through(policy, query, seed=3).decide(features, samples).mask  # type: ignore[arg-type]
        for query in ("same", "off", "resampled")
    }
    own = policy.decide(features, samples).mask
    assert torch.equal(masks["same"], own) and masks["off"].all()
    assert torch.equal(masks["resampled"].sum(1), own.sum(1))
    assert not torch.equal(masks["resampled"], own)
    drawn = ResampledPruning(policy, seed=3)
    first, second = (drawn.decide(features, samples).mask for _ in range(2))
    assert torch.equal(first, masks["resampled"]) and not torch.equal(first, second)
    assert drawn.label != policy.label and "resampled" in drawn.label

    access = QueryAccess(model, policy, "off", batch_size=4)
    replies = access.score(samples)
    assert access.count == 6
    everything = QueryAccess(model, NoPruning()).score(samples)
    assert replies.log_prob.tolist() == everything.log_prob.tolist()


def test_a_question_crosses_the_defence_that_every_answer_crosses() -> None:
    victim, samples = TinyVictim(), random_samples(4)
    past = QueryAccess(victim.model, victim.policy, encode=victim.encode)
    figures = [past.score(samples).log_prob.tolist()]
    for std in (0.0, 30.0):
        victim.channel = Channel((4,), defence=GaussianNoise(std), paradigm="split")
        access = QueryAccess.of(victim)
        figures.append(access.score(samples).log_prob.tolist())
        assert access.score(samples).log_prob.tolist() == figures[-1]
        assert access.answer(samples, 4) == list(ask(access, samples, 4).answers)
    assert access.answer(samples, 4) != past.answer(samples, 4)
    whole, silent, noisy = figures
    assert whole == silent != noisy
