"""Scores of canaries over K halves: each canary in exactly half of them, none missing."""

from dataclasses import replace

import numpy as np
import pytest

from qpriv.attacks.extraction.document_run import DocumentRun, Half, run_corpus, training_samples
from qpriv.attacks.extraction.halves import HalfOutcome, halves_scores, score_results
from qpriv.datasets.documents.canaries import group_of
from qpriv.errors import ConfigError
from qpriv.metrics.memorisation import balanced_splits


def made_up(splits, canaries=6, memorised=2):
    """Return halves whose models say the first canaries where they were taught them."""
    kept = balanced_splits(list(range(canaries)), splits, seed=0)
    said = kept & (np.arange(canaries) < memorised)
    documents = [f"d{number // 2}" for number in range(canaries)]
    return [
        HalfOutcome(
            0.5, 0, number, splits, own.tolist(), out.tolist(), [True] * canaries, documents
        )
        for number, (own, out) in enumerate(zip(kept, said, strict=True))
    ]


def test_scores_have_intervals_and_a_count_of_what_is_certain():
    results = {(r.name, r.attack["page"]): r for r in score_results(halves_scores(made_up(20)))}
    assert results["extraction/memorisation", "erased"].value == pytest.approx(1 / 3)
    assert results["extraction/memorisation", "erased"].ci is not None
    certain = results["extraction/memorised_for_certain", "erased"]
    assert (certain.value, certain.n) == (2, 3)
    assert results["extraction/memorised_for_certain", "whole"].value == 0
    assert results["extraction/simplicity", "whole"].value == 2


def test_the_order_of_the_halves_does_not_matter():
    halves = made_up(4)
    forward, backward = halves_scores(halves), halves_scores(halves[::-1])
    assert (forward.extraction.memorisation == backward.extraction.memorisation).all()


@pytest.mark.parametrize("spoil", [lambda h: h[1:], lambda h: [*h[1:], h[1]]])
def test_a_missing_or_repeated_half_is_refused(spoil):
    with pytest.raises(ConfigError, match="give each of 0 to 3 once"):
        halves_scores(spoil(made_up(4)))


def test_halves_of_two_trainings_are_refused():
    first, *others = made_up(4)
    with pytest.raises(ConfigError, match="of 2 trainings"):
        halves_scores([replace(first, resolution=1.0), *others])


def test_each_canary_is_taught_in_half_of_the_splits(tmp_path):
    seen = []
    for number in range(4):
        run = DocumentRun(
            num_base=2, num_eval=2, num_canaries={1: 3}, half=Half(number=number, splits=4)
        )
        corpus = run_corpus(run, tmp_path)
        seen.append({group_of(sample) for sample in training_samples(run, corpus, seed=0)})
    counts = [sum(group in groups for groups in seen) for group in set().union(*seen)]
    assert set(counts) <= {2, 4}  # canaries in half, base documents in all
    assert counts.count(2) >= 6


@pytest.mark.parametrize("given", [{"splits": 3}, {"splits": 0}, {"number": 8}, {"number": -1}])
def test_impossible_halves_are_refused(given):
    with pytest.raises(ConfigError):
        Half(**{"number": 0, "splits": 8, **given})
