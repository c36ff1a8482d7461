"""Attacks on gradients that cross a cut: they reveal the image below it or the label above it.

The server of a split computes the gradient at its cut C itself, and the server of a U-shaped split
the one at C_A. These gradients tell the server nothing beyond the activations, but they may reveal
the image to somebody else. The gradient at C_B is the only message of a U-shaped client that
depends on the label; the tail's weight gradients never cross.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qpriv.datasets.sample import VQASample
from qpriv.result import Result, Scalar
from qpriv.split import Direction, Kind, RandomKey, Transcript

from ..threat import ThreatModel
from ..victim import Victim
from .candidates import asked, score_images, score_tail_answers
from .inversion import gradient_norm
from .report import Knowledge, answer_ids, mean, share
from .sources import share_cuts

TAIL = ThreatModel(
    auxiliary="scenes of the same task",
    access="activation into the tail, its gradient, and the public base model",
)
"""The server of a U-shaped split, at C_B."""

IMAGE = ThreatModel(
    attacker="outsider",
    auxiliary="candidate images; question and answer",
    access="gradient that returns at the cut, and the public base model",
)
"""The observer of the gradients that return at C or C_A."""


def attack_cut(
    victim: Victim,
    samples: Sequence[VQASample],
    knowledge: Knowledge,
    cut: int,
    candidates: int = 16,
    seed: int = 0,
) -> list[Result]:
    """Attack the gradients of single samples that cross one of the victim's cuts.

    At the second cut of a U-shaped split, the results are ``tail_label_accuracy`` and
    ``tail_label_accuracy_prior``. At any other cut they are ``image_top1`` (how often the right
    image is chosen among the candidates), chance as the prior, and ``image_top1_activation``, the
    same from the activations, which cross anyway. Every result comes with ``gradient_norm``.

    Args:
        victim: The model in training.
        samples: Training samples, one per image.
        knowledge: The attacker's prior knowledge.
        cut: The attacked cut.
        candidates: Number of images to choose from, including the right one.
        seed: Seed of the other images.
    """
    crossed = [
        share_cuts(
            victim.model,
            [sample],
            victim.policy,
            victim.encode,
            victim.channel,
            RandomKey(seed, step),
        )
        for step, sample in enumerate(samples)
    ]
    norms = [gradient_norm(transcript.rows(cut, Kind.GRADIENT)) for transcript in crossed]
    (way,) = (own.direction for own in victim.channel.cuts if own.layer == cut)
    if way is Direction.UP:
        figures = _images(victim, samples, knowledge, cut, crossed, candidates, seed)
        threat, count = IMAGE, candidates
    else:
        figures = _labels(victim, samples, knowledge, cut, crossed)
        threat, count = TAIL, len(knowledge.answers)
    settings: dict[str, Scalar] = {
        **threat.settings(),
        "surface": "cut",
        "cut": cut,
        "gradient_norm": float(np.mean(norms)),
        "candidates": count,
    }
    figures.append(mean("cut_gradient_norm", norms))
    return [replace(figure, attack={**settings, **figure.attack}) for figure in figures]


def _labels(
    victim: Victim,
    samples: Sequence[VQASample],
    knowledge: Knowledge,
    cut: int,
    crossed: Sequence[Transcript],
) -> list[Result]:
    # an answer's tokens do not depend on the question, so any sample gives them
    texts = [asked(samples[:1], samples[0].question, answer) for answer in knowledge.answers]
    tokens = [answer_ids(victim.model, text) for (text,) in texts]
    hits, guesses = [], []
    for sample, transcript in zip(samples, crossed, strict=True):
        scores = score_tail_answers(victim.model, transcript, cut, tokens)
        hits.append(knowledge.answers[int(scores.argmax())] == sample.answer)
        guesses.append(knowledge.guessed_answer(sample.question) == sample.answer)
    return [
        share("tail_label_accuracy", hits, sum(guesses) / len(guesses)),
        share("tail_label_accuracy_prior", guesses),
    ]


def _images(
    victim: Victim,
    samples: Sequence[VQASample],
    knowledge: Knowledge,
    cut: int,
    crossed: Sequence[Transcript],
    candidates: int,
    seed: int,
) -> list[Result]:
    generator = np.random.default_rng(seed)
    hits: dict[Kind, list[bool]] = {Kind.GRADIENT: [], Kind.ACTIVATION: []}
    for sample, transcript in zip(samples, crossed, strict=True):
        others = generator.choice(len(knowledge.samples), candidates - 1, replace=False)
        images = [sample, *(knowledge.samples[other] for other in others)]
        order = generator.permutation(candidates)  # no attack may win by a tie
        shown = asked([images[n] for n in order], sample.question, sample.answer)
        scores = score_images(
            victim.model, victim.policy, victim.encode, transcript, victim.channel, cut, shown
        )
        for kind, found in hits.items():
            found.append(bool(order[int(scores[kind].argmax())] == 0))
    return [
        share("image_top1", hits[Kind.GRADIENT], 1 / candidates),
        share("image_top1_activation", hits[Kind.ACTIVATION], 1 / candidates),
    ]
