"""Attacks on a federated client's update: recover labels and the words of the question."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qpriv.datasets.sample import VQASample
from qpriv.metrics.means import RATE
from qpriv.result import Result, Scalar

from ..threat import ThreatModel
from ..victim import Victim
from .candidates import score_update_answers
from .label_recovery import answer_tokens
from .report import Knowledge, answer_ids, mean, share
from .sources import HEAD, SharedGradient, read_update, share_update
from .span_test import first_layer_span, token_inputs

THREAT = ThreatModel(
    auxiliary="scenes of the same task",
    access="one client's update of one sample, and the weights it sent",
)
"""Of the span test and of the head's rule."""

ASKED = replace(THREAT, auxiliary="scenes of the same task; the question")
"""Of candidate matching."""


@dataclass(frozen=True)
class Words:
    """The span test's scores on one text.

    Args:
        feasible: Whether the span test can find any word.
        rank: Number of linearly independent inputs in the update.
        precision: Share of found words that are in the text; NaN if none is found.
        recall: Share of the text's words that are found.
        f1: Harmonic mean of precision and recall.
        guess: F1 of guessing the most common words of the task.
    """

    feasible: bool
    rank: int
    precision: float
    recall: float
    f1: float
    guess: float


def attack_updates(
    victim: Victim,
    samples: Sequence[VQASample],
    knowledge: Knowledge,
    stand_ins: Sequence[VQASample],
    seed: int = 0,
) -> list[Result]:
    """Attack the updates of clients that hold one sample each and take one step of SGD.

    - ``label_accuracy_head``: answer tokens from the gradient of the LM head, if the head is
      trained too;
    - ``label_accuracy_lora``: candidate matching of the answer on the last adapter's gradient,
      with the question known (`score_update_answers`);
    - ``label_accuracy_prior``: the most common answer to the question;
    - ``span_precision``, ``span_recall``, ``span_f1``: words of question and answer in the span of
      the first layer's inputs, with the most common words as ``span_f1_prior``;
    - ``span_feasible``: share of updates whose rank is below their number of rows;
    - ``span_rank``: that rank. Rounding of the stored weights hides weak inputs, so with a small
      gradient or learning rate the rank is below the number of tokens and ``span_recall`` falls;
    - ``gradient_norm``: norm of the adapter's gradient, reported with every result.

    Args:
        victim: The model in training.
        samples: Training samples, one per image.
        knowledge: The attacker's prior knowledge.
        stand_ins: The attacker's images, in place of the client's.
        seed: Seed of the client's dropout.
    """
    heads, adapters, guesses, norms, words = [], [], [], [], []
    for sample in samples:
        shared, head = _share(victim, sample, seed)
        end = victim.model.preprocessor.tokenizer.eos_token_id
        found = answer_tokens(head.values[HEAD], end, head.rounding[HEAD])
        heads.append(found == set(answer_ids(victim.model, sample)[:-1]))
        adapters.append(_matched(victim, sample, shared, knowledge, stand_ins) == sample.answer)
        guesses.append(knowledge.guessed_answer(sample.question) == sample.answer)
        norms.append(shared.norm)
        words.append(find_words(victim, sample, shared, knowledge))
    prior = sum(guesses) / len(guesses)
    figures = [
        _under(share("label_accuracy_head", heads, prior), {"trained_head": True}),
        _under(share("label_accuracy_lora", adapters, prior), ASKED.settings()),
        share("label_accuracy_prior", guesses),
        *_word_figures(words),
        mean("gradient_norm", norms),
    ]
    settings: dict[str, Scalar] = {
        **THREAT.settings(),
        "surface": "update",
        "gradient_norm": float(np.mean(norms)),
        "candidates": len(knowledge.answers),
        "stand_ins": len(stand_ins),
        "rank": victim.recipe.rank,
        "trained_head": False,
    }
    return [_under(figure, settings) for figure in figures]


def find_words(
    victim: Victim, sample: VQASample, shared: SharedGradient, knowledge: Knowledge
) -> Words:
    """Run the span test on a sample's update and score the words that it finds."""
    span = first_layer_span(shared)
    inside = span.holds(token_inputs(victim.model)).nonzero()[:, 0].tolist()
    truth = frozenset(victim.model.preprocessor.text_tokens(sample)) - knowledge.template
    found = frozenset(inside) - knowledge.template
    precision, recall, f1 = _scores(found, truth)
    guess = _scores(knowledge.guess, truth)[2]
    return Words(span.feasible, span.rank, precision, recall, f1, guess)


def _share(victim: Victim, sample: VQASample, seed: int) -> tuple[SharedGradient, SharedGradient]:
    """Return the adapter's part of an update that trains the head too, and the head's part."""
    transcript = share_update(
        victim.model,
        [sample],
        victim.policy,
        victim.encode,
        victim.recipe,
        train_head=True,
        seed=seed,
    )
    return read_update(transcript, victim.recipe.learning_rate).split_head()


def _under(figure: Result, settings: Mapping[str, Scalar]) -> Result:
    """Return a result with further settings; its own settings take precedence."""
    return replace(figure, attack={**settings, **figure.attack})


def _matched(
    victim: Victim,
    sample: VQASample,
    shared: SharedGradient,
    knowledge: Knowledge,
    stand_ins: Sequence[VQASample],
) -> str:
    scores = score_update_answers(
        victim.model,
        victim.policy,
        victim.encode,
        shared,
        sample.question,
        knowledge.answers,
        stand_ins,
    )
    return knowledge.answers[int(scores.argmax())]


def _scores(found: frozenset[int], truth: frozenset[int]) -> tuple[float, float, float]:
    """Return precision, recall and F1 of a set of tokens; NaN if undefined."""
    right = len(found & truth)
    precision = right / len(found) if found else float("nan")
    if not truth:
        return precision, float("nan"), float("nan")
    return precision, right / len(truth), 2 * right / (len(found) + len(truth))


def _word_figures(words: Sequence[Words]) -> list[Result]:
    guess = mean("span_f1_prior", [text.guess for text in words], bounds=RATE)
    return [
        mean("span_precision", [text.precision for text in words], bounds=RATE),
        mean("span_recall", [text.recall for text in words], bounds=RATE),
        mean("span_f1", [text.f1 for text in words], prior=guess.value, bounds=RATE),
        guess,
        share("span_feasible", [text.feasible for text in words]),
        mean("span_rank", [float(text.rank) for text in words], "tokens"),
    ]
