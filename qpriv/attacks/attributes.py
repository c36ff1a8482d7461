"""Attribute inference: predict a sample's attributes from activations, against baselines.

A linear and a two-layer probe predict an attribute (is there a face? what kind of question?) from
the tokens that crossed. Each accuracy is reported with chance, the majority, and two baselines
that never see an activation: the words of the question, and these words with the gold answer,
which some attackers hold (the *baseline* and the *true-label baseline* of attribute inference).
Activations leak what they add to these baselines. A probe on shuffled labels is the control and
must end at chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from sklearn.feature_extraction.text import CountVectorizer

from qpriv.datasets.sample import VQASample
from qpriv.declaration import Attack, Row
from qpriv.metrics.means import CHANGE, IMAGE_GROUP, mean_result
from qpriv.quantity import Quantity
from qpriv.result import Result
from qpriv.split.transcript import Transcript

from .prediction import (
    MIN_SAMPLES,
    Floats,
    Prediction,
    activation_classifiers,
    count_classifiers,
    fit_predict,
    nothing_to_tell,
    prediction_report,
    quantities,
)
from .side_channel import TITLES, Target, truth_of
from .threat import ThreatModel

Source = Literal["activations", "question", "question_and_answer"]
"""Inputs of the prediction; the last two are baselines."""

THREAT = ThreatModel(auxiliary="labelled in-domain samples, through the true client")

ATTACKS = (
    Attack(
        name="attributes",
        title="Attribute inference",
        quantities=tuple(
            own
            for target, title in TITLES.items()
            for own in (
                *quantities(target, title, "balanced_accuracy"),
                Quantity(
                    name=f"{target}_gain_over_question",
                    title=f"{title}: gain over the question's words",
                    meaning="Accuracy less that of reading the question alone, paired by sample.",
                    direction="leak",
                    chance=0.0,
                ),
                *quantities(f"{target}_from_question", f"{title} from the question's words"),
                *quantities(
                    f"{target}_from_question_and_answer", f"{title} from question and answer"
                ),
                *quantities(f"{target}_shuffled", f"{title}, control on shuffled labels"),
            )
        ),
        rows=(
            Row(
                what="attribute inference, `AttributeProbe`",
                who="server; no",
                holds="labelled in-domain samples",
                knows="knows the policy",
                measures="accuracy, balanced accuracy, gain",
                beside="majority, chance, words of the question, words and gold answer, shuffled "
                "labels",
                source="ART's two baselines",
            ),
        ),
    ),
)


@dataclass(frozen=True)
class Evidence:
    """Samples of one side with their activations.

    Args:
        samples: The samples.
        activations: Pooled activations of each sample, ``[n, f]``.
    """

    samples: Sequence[VQASample]
    activations: Floats

    @property
    def groups(self) -> list[str]:
        """Return the image or patient of each sample."""
        return [sample.group_id for sample in self.samples]

    def texts(self, source: Source) -> list[str]:
        """Return the texts that a baseline reads."""
        if source == "question":
            return [sample.question for sample in self.samples]
        return [f"{sample.question} => {sample.answer}" for sample in self.samples]


def pooled(transcript: Transcript, cut: int) -> Floats:
    """Return one row of numbers for each sample: mean and maximum over its image tokens, mean
    over the text after them, and how many there are of both, ``[n, 3 d + 2]``.

    Args:
        transcript: What crossed, with its tensors stored.
        cut: The cut that is read.
    """  # noqa: D205
    rows = []
    texts = transcript.text_rows(cut)
    for image, text in zip(transcript.image_rows(cut), texts, strict=True):
        counts = torch.tensor([float(len(image)), float(len(text))])
        empty = image.new_zeros(1, image.shape[1])
        image, text = (part if len(part) else empty for part in (image, text))
        parts = (image.mean(dim=0), image.amax(dim=0), text.mean(dim=0), counts)
        rows.append(torch.cat([part.float() for part in parts]))
    return torch.stack(rows).double().numpy()


def attribute_report(
    target: Target, known: Evidence, private: Evidence, *, seed: int = 0
) -> list[Result]:
    """Return how well activations predict an attribute, and how well the baselines do.

    The names are those of `prediction_report` for ``<target>``, ``<target>_from_question``,
    ``<target>_from_question_and_answer`` and the control ``<target>_shuffled``. In addition,
    ``<target>_gain_over_question`` is paired by sample: activations leak the attribute if its
    interval lies above zero. If the answer is the target, it is not used as a baseline.

    Args:
        target: The attribute.
        known: The attacker's own samples.
        private: The attacked samples; only the metric sees their ground truth.
        seed: Seed of the probes and of the shuffled labels.
    """
    labels, truth = truth_of(target, known.samples), truth_of(target, private.samples)
    if labels is None or truth is None:
        return [nothing_to_tell(target, f"these samples have no {target}")]
    if len(labels) < MIN_SAMPLES or len(set(labels)) < 2:
        why = f"{len(labels)} samples of {len(set(labels))} classes to learn from"
        return [nothing_to_tell(target, why)]

    def told(source: Source, classes: Sequence[str]) -> Prediction:
        inputs, asked = _inputs(source, known, private)
        tried = activation_classifiers if source == "activations" else count_classifiers
        return fit_predict(inputs, classes, known.groups, asked, seed, tried)

    shuffled = np.random.default_rng(seed).permutation(labels).tolist()
    found = {
        target: told("activations", labels),
        f"{target}_from_question": told("question", labels),
        f"{target}_shuffled": told("activations", shuffled),
    }
    if target != "answer":
        name = f"{target}_from_question_and_answer"
        found[name] = told("question_and_answer", labels)
    report = []
    for name, own in found.items():
        report += prediction_report(name, own, truth, labels, private.groups)
    question = found[f"{target}_from_question"]
    report.append(_gain(target, found[target], question, truth, private.groups))
    return report


def _inputs(source: Source, known: Evidence, private: Evidence) -> tuple[Floats, Floats]:
    if source == "activations":
        return known.activations, private.activations
    words = CountVectorizer(token_pattern=r"\w+", binary=True).fit(known.texts(source))
    inputs, asked = (words.transform(side.texts(source)).toarray() for side in (known, private))
    return inputs.astype(np.float64), asked.astype(np.float64)


def _gain(
    target: Target,
    told: Prediction,
    baseline: Prediction,
    truth: Sequence[str],
    groups: Sequence[str],
) -> Result:
    classes = np.asarray(truth)
    difference = (told.likeliest == classes) * 1.0 - (baseline.likeliest == classes) * 1.0
    return mean_result(
        f"{target}_gain_over_question", difference, {IMAGE_GROUP: groups}, bounds=CHANGE
    )
