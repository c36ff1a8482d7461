"""Memorisation and simplicity of every canary: K trainings on halves, each resumable on its own."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from qpriv.attacks.extraction import extract, full_pages
from qpriv.attacks.extraction_contexts import ERASED
from qpriv.datasets.documents.canaries import Canary, group_of
from qpriv.datasets.sample import VQASample
from qpriv.metrics.memorisation import Flags, Scores, balanced_splits, scores
from qpriv.models.documents.batch import by_page
from qpriv.models.documents.loading import load_document_model
from qpriv.paradigms.documents import fine_tune
from qpriv.reporting.document_study import Corpus, DocumentStudy, study_corpus


@dataclass(frozen=True)
class SplitOutcome:
    """What the model of one split says.

    Args:
        kept: Canaries it was trained on.
        erased: Canaries it says on pages without them.
        whole: Canaries it says on whole pages.
    """

    kept: list[bool]
    erased: list[bool]
    whole: list[bool]


@dataclass(frozen=True)
class StudyScores:
    """Scores of all canaries.

    Args:
        extraction: M_E and S_E, on pages without the answer.
        whole: M and S, on whole pages.
    """

    extraction: Scores
    whole: Scores


def run_splits(
    study: DocumentStudy, splits: int, resolution: float, folder: Path, seed: int = 0
) -> StudyScores:
    """Train on K halves of the canaries what has no file yet, and return the scores.

    Args:
        study: Documents, model and recipe.
        splits: Number K of trainings, even.
        resolution: Training resolution.
        folder: Where each split leaves its file; a killed split costs itself and no other.
        seed: Seed of the draw and of the trainings.

    Raises:
        ConfigError: If K is odd.
    """
    corpus = study_corpus(study, folder / "canaries")
    canaries = corpus.canaries.canaries
    kept = balanced_splits([canary.group for canary in canaries], splits, seed)
    outcomes = []
    for number in range(splits):
        path = folder / f"split={number}-of-{splits}-resolution={resolution:g}-seed={seed}.json"
        if not path.exists():
            print(f"split {number + 1} of {splits}: trains", flush=True)
            outcome = _run(study, corpus, kept[number], resolution, seed)
            part = path.with_suffix(".part")
            part.write_bytes(msgspec.json.encode(outcome))
            part.replace(path)
        outcomes.append(msgspec.json.decode(path.read_bytes(), type=SplitOutcome))
    inside = np.array([outcome.kept for outcome in outcomes], dtype=bool)
    erased, whole = (
        np.array([getattr(outcome, name) for outcome in outcomes], dtype=bool)
        for name in ("erased", "whole")
    )
    return StudyScores(scores(erased, inside), scores(whole, inside))


def split_training(
    training: list[VQASample], canaries: tuple[Canary, ...], kept: Flags
) -> list[VQASample]:
    """Return a training set without the canaries that a split leaves out, nor their groups."""
    left_out = {c.group for c, keep in zip(canaries, kept.tolist(), strict=True) if not keep}
    return [sample for sample in training if group_of(sample) not in left_out]


def _run(
    study: DocumentStudy, corpus: Corpus, kept: Flags, resolution: float, seed: int
) -> SplitOutcome:
    canaries = corpus.canaries
    training = split_training(corpus.documents.training(), canaries.canaries, kept)
    model = load_document_model(study.document_model, resolution)
    fine_tune(model, by_page(training), study.recipe, seed)
    samples = [canaries.sample(number) for number in range(len(canaries.canaries))]
    return SplitOutcome(
        kept.tolist(),
        extract(model, canaries.queries(ERASED)).exact.tolist(),
        extract(model, full_pages(samples)).exact.tolist(),
    )
