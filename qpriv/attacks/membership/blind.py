"""The blind baseline: distinguish members from non-members without querying the model.

If it succeeds, the two sets differ by themselves, and a membership attack may only detect that
difference (Das et al. 2024, *Blind Baselines Beat Membership Inference Attacks for Foundation
Models*).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.preprocessing import StandardScaler

from qpriv.datasets.sample import VQASample

FOLDS = 5
"""Folds of the cross-validation; there must be as many groups of members and of non-members."""


def count_groups(samples: Sequence[VQASample]) -> int:
    """Return the number of images (or patients) among samples."""
    return len({sample.group_id for sample in samples})


def blind_scores(
    members: Sequence[VQASample], nonmembers: Sequence[VQASample], seed: int = 0
) -> NDArray[np.float64]:
    """Return a score for every sample, members first, from a cross-validation by group.

    The classifier is a logistic regression on the words of question and answer and on image
    statistics. Each score comes from a classifier that never saw the sample's image.

    Args:
        members: Samples that were trained on.
        nonmembers: Samples that were not.
        seed: Seed of the folds.

    Returns:
        Scores ``[m + n]``, higher means member.
    """
    samples = [*members, *nonmembers]
    member = np.arange(len(samples)) < len(members)
    groups = [sample.group_id for sample in samples]
    words, pictures = _words(samples), _pictures(samples)
    scores = np.zeros(len(samples))
    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
    for known, asked in folds.split(words, member, groups):
        scaler = StandardScaler().fit(pictures[known])
        inputs = hstack([words, csr_matrix(scaler.transform(pictures))]).tocsr()
        model = LogisticRegression(C=0.1, max_iter=500).fit(inputs[known], member[known])
        told = model.decision_function(inputs[asked])
        scores[asked] = told - told.mean()  # models of different folds have different offsets
    return scores


def _words(samples: Sequence[VQASample]) -> csr_matrix:
    texts = [f"{sample.question} => {sample.answer}" for sample in samples]
    return CountVectorizer(token_pattern=r"\w+", binary=True, min_df=2).fit_transform(texts)


def _pictures(samples: Sequence[VQASample]) -> NDArray[np.float64]:
    """Return mean, spread and edge strength of each colour, and a histogram of grey, ``[n, 17]``."""
    rows = []
    for sample in samples:
        pixels = np.asarray(sample.image.load(), dtype=np.float64) / 255
        edges = (
            np.abs(np.diff(pixels, axis=0)).mean((0, 1)),
            np.abs(np.diff(pixels, axis=1)).mean((0, 1)),
        )
        histogram, _ = np.histogram(pixels.mean(axis=2), bins=8, range=(0, 1), density=True)
        rows.append(
            [*pixels.mean((0, 1)), *pixels.std((0, 1)), *((edges[0] + edges[1]) / 2), *histogram]
        )
    return np.asarray(rows)
