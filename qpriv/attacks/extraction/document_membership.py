"""Document membership: was this document trained on? By how far a layer moves to learn it.

After Nguyen et al. 2025, "DocMIA: Document-Level Membership Inference Attacks against DocVQA
Models" (arXiv 2502.03692), section 4: for each question about a document one layer is fine-tuned
until its loss settles; a document that was trained on needs few steps and a short way. Features of
its questions are aggregated, and clustering tells two kinds of documents apart without any
document whose membership is known.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler
from torch import nn

from qpriv.attacks.extraction.asking import encode
from qpriv.attacks.membership.blind import blind_scores
from qpriv.datasets.sample import VQASample
from qpriv.declaration import Attack, Row, aside
from qpriv.errors import ModelError
from qpriv.metrics.membership import QUANTITIES
from qpriv.models.documents.base import DocumentModel

Floats = NDArray[np.float64]
ATTACKS = (
    Attack(
        name="document_membership",
        title="Document membership",
        quantities=aside(QUANTITIES, "auc", "tpr_at_1_fpr"),
        rows=(
            Row(
                what="document membership, `qpriv documents train`",
                who="whoever holds the model; no",
                holds="pages and questions of the documents in question",
                knows="not applicable",
                measures="AUC and the same operating points, by method",
                beside="a baseline that never asks; models that saw none of the documents",
                source="Nguyen et al. 2025 (DocMIA)",
            ),
        ),
    ),
)
LAYERS = {
    "donut": r"decoder\..*\.fc2(\.base_layer)?\.weight$",
    "pix2struct": r"decoder\..*\.wo(\.base_layer)?\.weight$",
    "paligemma": r"language_model\..*\.down_proj(\.base_layer)?\.weight$",
}
"""Output projections of the feed-forward layers of each family's text decoder."""
AGGREGATES: tuple[Callable[[Floats], Any], ...] = (np.mean, np.min, np.max, np.median)
FEATURES = ("loss", "distance", "steps")
"""What is measured of a question: loss before, how far the layer moved, in how many steps."""


@dataclass(frozen=True, kw_only=True)
class LayerTuning:
    """How a layer is fine-tuned on one question.

    Args:
        learning_rate: Learning rate of Adam.
        tolerance: Tuning ends when the loss moves by less than this in a step.
        steps: Most steps.
    """

    learning_rate: float = 1e-3
    tolerance: float = 1e-3
    steps: int = 30


def membership_features(
    model: DocumentModel,
    documents: Sequence[Sequence[VQASample]],
    settings: LayerTuning | None = None,
) -> Floats:
    """Return the features of documents: those of their questions, aggregated.

    Args:
        model: The attacked model, whose weights are known; left as it was, in evaluation mode.
        documents: The questions about each of D documents.
        settings: How the layer is tuned.

    Returns:
        Mean, least, greatest and median of each of `FEATURES` ``[D, 12]``.
    """
    tuning = settings or LayerTuning()
    model.eval()
    rows = []
    for questions in documents:
        measured = np.array([_tuned(model, question, tuning) for question in questions])
        rows.append([float(of(column)) for column in measured.T for of in AGGREGATES])
    return np.asarray(rows, dtype=np.float64).reshape(len(documents), -1)


def _tuned(model: DocumentModel, sample: VQASample, tuning: LayerTuning) -> tuple[float, ...]:
    """Return loss, distance and steps of one question."""
    tokens = model.tokenise([sample.question], [sample.answer])
    with torch.no_grad():  # the layer sits behind the page: it is encoded once
        pages = encode(model, [sample.image.load()], [sample.question])
    with _borrowed(attacked_layer(model)) as weight:
        start = weight.detach().clone()
        optimizer = torch.optim.Adam([weight], tuning.learning_rate)
        losses: list[float] = []
        for _ in range(tuning.steps):
            loss = model.loss(model.logits(pages, tokens), tokens)
            losses.append(float(loss.detach()))
            if len(losses) > 1 and abs(losses[-2] - losses[-1]) < tuning.tolerance:
                break
            (weight.grad,) = torch.autograd.grad(loss, [weight])
            optimizer.step()
        return losses[0], float((weight.detach() - start).norm()), float(len(losses))


def attacked_layer(model: DocumentModel) -> nn.Parameter:
    """Return the weight that is tuned: the last feed-forward projection of the text decoder.

    Raises:
        ModelError: If the network has none under the names of its family.
    """
    pattern = re.compile(LAYERS[model.family])
    found = [weight for name, weight in model.named_parameters() if pattern.search(name)]
    if not found:
        raise ModelError(f"no feed-forward layer in this {model.family}", where="decoder")
    return found[-1]


@contextmanager
def _borrowed(weight: nn.Parameter) -> Iterator[nn.Parameter]:
    """Yield a weight that can be trained; afterwards it is what it was."""
    kept, trained, gradient = weight.detach().clone(), weight.requires_grad, weight.grad
    weight.requires_grad_(True)
    try:
        yield weight
    finally:
        with torch.no_grad():
            weight.copy_(kept)
        weight.requires_grad_(trained)
        weight.grad = gradient


def membership_scores(features: Floats, seed: int = 0) -> Floats:
    """Return how much each document looks like a member, above zero for those called members.

    Two clusters of the standardised features; members are those of the cluster whose documents
    have less to learn. The score is how much nearer its centre is than the other one's.

    Args:
        features: As `membership_features` returns them ``[D, F]``.
        seed: Seed of the clustering.
    """
    scaled = StandardScaler().fit_transform(features)
    centres = KMeans(2, n_init=10, random_state=seed).fit(scaled).cluster_centers_
    members, others = sorted(centres, key=lambda centre: float(centre.mean()))
    to_others = np.linalg.norm(scaled - others, axis=1)
    to_members = np.linalg.norm(scaled - members, axis=1)
    return np.asarray(to_others - to_members, dtype=np.float64)


def loss_scores(features: Floats) -> Floats:
    """Return the scores of the plain loss attack: minus the mean loss of the questions ``[D]``."""
    return -features[:, 0]


def blind_document_scores(
    members: Sequence[Sequence[VQASample]], others: Sequence[Sequence[VQASample]], seed: int = 0
) -> Floats:
    """Return scores that ask no model: what the documents themselves tell about membership.

    Args:
        members: Questions about each document that was trained on.
        others: The same of those that were not.
        seed: Seed of the folds.

    Returns:
        Mean score of each document's questions, members first.
    """
    flat = [[sample for document in side for sample in document] for side in (members, others)]
    scores = blind_scores(flat[0], flat[1], seed)
    ends = np.cumsum([len(document) for document in (*members, *others)])
    return np.array([part.mean() for part in np.split(scores, ends[:-1])])
