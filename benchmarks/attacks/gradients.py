"""Gradient attacks and irrelevant questions against plain loops."""

import numpy as np
import torch

from benchmarks.attacks.membership import Floats, largest
from benchmarks.attacks.timing import Pair
from qpriv.attacks.gradients.candidates import score_tail_answers
from qpriv.attacks.gradients.inversion import GradientInversion
from qpriv.attacks.gradients.report import answer_ids
from qpriv.attacks.gradients.sources import share_cuts
from qpriv.attacks.gradients.span_test import input_span
from qpriv.attacks.irrelevant_questions import ask
from qpriv.attacks.query import QueryAccess
from qpriv.datasets.face_scenes import FaceScenes
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.pruning.policy import NoPruning
from qpriv.split import Channel
from tests.qpriv.attacks.gradients.classifiers import LeNet, digits
from tests.qpriv.attacks.gradients.test_inversion import observe, published_loop, shared_gradient


def pairs(images: int = 3) -> list[Pair[Floats]]:
    """Return the pairs of this page; so many images are inverted by iDLG."""
    model = VisionLanguageModel.from_pretrained("tiny")
    model.add_lora()
    return [idlg_pair(images), span_pair(), tail_pair(model), asking_pair(model)]


def idlg_pair(images: int) -> Pair[Floats]:
    """Continuous recovery of scanned digits from the gradient of the published LeNet."""
    pictures, labels = digits()
    nets, seen = [], []
    for seed in range(images):
        torch.manual_seed(seed)
        nets.append(LeNet("sigmoid").published_weights())
        row = torch.randint(len(pictures), (1,))
        seen.append(observe(nets[-1], pictures[row], labels[row]))

    def ours() -> Floats:
        found = [
            GradientInversion(seed=n).invert(shared_gradient(net), observed, (1, 28, 28))
            for n, (net, observed) in enumerate(zip(nets, seen, strict=True))
        ]
        return np.asarray([float(each.match.solved) for each in found])

    def plain() -> Floats:
        runs = zip(nets, seen, strict=True)
        distances = [published_loop(net, o, n)[0] for n, (net, o) in enumerate(runs)]
        return np.asarray([float(distance < 1e-6) for distance in distances])

    return Pair(
        attack="iDLG",
        ours=ours,
        plain=plain,
        says=f"{images} digits to a gradient distance of 1e-6: restarts and a line search; "
        "the published loop (differ: images that one solved and the other did not)",
        differ=lambda own, theirs: float(np.abs(own - theirs).sum()),
        rounds=1,
        promised=1 / 0.75,
    )


def span_pair(vocabulary: int = 2000, width: int = 128, tokens: int = 16) -> Pair[Floats]:
    """The span test over a vocabulary."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(vocabulary, width, generator=generator)
    gradient = torch.randn(32, tokens, generator=generator) @ inputs[:tokens]

    def plain() -> Floats:
        rows = gradient.double()
        found = []
        for token in inputs.double():
            fit = torch.linalg.lstsq(rows.T, token[:, None], rcond=1e-5, driver="gelsd").solution
            found.append(float((rows.T @ fit - token[:, None]).norm() / token.norm()))
        return np.asarray(found)

    return Pair(
        attack="span test",
        ours=lambda: np.asarray(input_span([gradient]).distances(inputs)),
        plain=plain,
        says=f"{vocabulary} tokens: one projection; a least-squares fit each",
        differ=largest,
        rounds=1,
    )


def tail_pair(model: VisionLanguageModel, cut: int = 6) -> Pair[Floats]:
    """Candidate matching at the tail of a U-shaped split."""
    samples = FaceScenes("members", 16, 0, "scenes", 1).samples
    answers = [answer_ids(model, sample) for sample in samples]
    transcript = share_cuts(model, samples[:1], NoPruning(), model.encode, Channel((2, cut)))

    def plain() -> Floats:
        scores = [score_tail_answers(model, transcript, cut, [answer]) for answer in answers]
        return np.asarray(torch.cat(scores))

    return Pair(
        attack="candidates at C_B",
        ours=lambda: np.asarray(score_tail_answers(model, transcript, cut, answers)),
        plain=plain,
        says=f"{len(answers)} answers: in one pass; one after another",
        differ=largest,
    )


def asking_pair(model: VisionLanguageModel, count: int = 32) -> Pair[Floats]:
    """Irrelevant questions."""
    samples = FaceScenes("members", count, 0, "scenes", 1).samples

    def lengths(batch_size: int) -> Floats:
        access = QueryAccess(model, NoPruning(), batch_size=batch_size)
        return np.asarray([float(len(text)) for text in ask(access, samples, 5).answers])

    return Pair(
        attack="irrelevant questions",
        ours=lambda: lengths(64),
        plain=lambda: lengths(1),
        says=f"{count} answers: in batches; one question at a time",
        differ=largest,
        rounds=1,
    )
