"""Memorisation and simplicity of every canary: K trainings on halves, each resumable on its own."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from qpriv.attacks.extraction import extract, full_pages
from qpriv.attacks.extraction_contexts import ERASED
from qpriv.datasets.documents.canaries import Canary, group_of
from qpriv.datasets.sample import VQASample
from qpriv.metrics.intervals import mean_interval
from qpriv.metrics.memorisation import Flags, Scores, balanced_splits, scores, size
from qpriv.models.documents.batch import by_page
from qpriv.models.documents.loading import load_document_model
from qpriv.paradigms.documents import fine_tune
from qpriv.result import Result, Scalar

from .document_jobs import Job, carry_out
from .document_study import Corpus, DocumentStudy, keep_settings, study_corpus

_NAME = re.compile(
    r"split=(?P<number>\d+)-of-(?P<splits>\d+)-resolution=(?P<resolution>[\d.]+)-seed=(?P<seed>\d+)"
)


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
        resolution: Training resolution of the splits.
        seed: Their seed.
        splits: Their number K.
        extraction: M_E and S_E, on pages without the answer.
        whole: M and S, on whole pages.
    """

    resolution: float
    seed: int
    splits: int
    extraction: Scores
    whole: Scores


def run_splits(
    study: DocumentStudy,
    splits: int,
    resolution: float,
    folder: Path,
    seed: int = 0,
    at_once: int = 1,
) -> StudyScores:
    """Train on K halves of the canaries what has no file yet, and return the scores.

    Args:
        study: Documents, model and recipe.
        splits: Number K of trainings, even.
        resolution: Training resolution.
        folder: Where each split leaves its file; a killed split costs itself and no other.
        seed: Seed of the draw and of the trainings.
        at_once: Trainings at a time.

    Raises:
        ConfigError: If K is odd, or the files that are there come from other settings.
    """
    keep_settings(study, folder)
    corpus = study_corpus(study, folder / "canaries")
    canaries = corpus.canaries.canaries
    kept = balanced_splits([canary.group for canary in canaries], splits, seed)
    jobs = [
        Job(
            folder / f"split={number}-of-{splits}-resolution={resolution:g}-seed={seed}.json",
            partial(_run, study, corpus, kept[number], resolution, seed),
        )
        for number in range(splits)
    ]
    carry_out(jobs, at_once)
    return _scores([_read(job.path) for job in jobs], resolution, seed)


def read_scores(folder: Path) -> list[StudyScores]:
    """Return the scores whose splits are all in a folder; unfinished ones are left out."""
    found: dict[tuple[float, int, int], list[SplitOutcome]] = {}
    for path in sorted(folder.glob("split=*.json")):
        name = _NAME.fullmatch(path.stem)
        if name:
            place = float(name["resolution"]), int(name["seed"]), int(name["splits"])
            found.setdefault(place, []).append(_read(path))
    return [
        _scores(outcomes, resolution, seed)
        for (resolution, seed, splits), outcomes in found.items()
        if len(outcomes) == splits
    ]


def _read(path: Path) -> SplitOutcome:
    return msgspec.json.decode(path.read_bytes(), type=SplitOutcome)


def _scores(outcomes: Sequence[SplitOutcome], resolution: float, seed: int) -> StudyScores:
    inside, erased, whole = (
        np.array([getattr(outcome, name) for outcome in outcomes], dtype=bool)
        for name in ("kept", "erased", "whole")
    )
    return StudyScores(
        resolution, seed, len(outcomes), scores(erased, inside), scores(whole, inside)
    )


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


def score_results(
    found: StudyScores, documents: Sequence[str], false_discoveries: float = 0.05
) -> list[Result]:
    """Return the figures of some scores, with intervals over documents.

    Args:
        found: The scores.
        documents: Document of each canary.
        false_discoveries: Largest expected share of false ones among those counted.
    """
    n = len(set(documents))
    pages: Mapping[str, Scores] = {"erased": found.extraction, "whole": found.whole}
    results = []
    for page, each in pages.items():
        setting: dict[str, Scalar] = {
            "model": "f",
            "resolution": found.resolution,
            "splits": found.splits,
            "page": page,
        }
        for name, values in (("memorisation", each.memorisation), ("simplicity", each.simplicity)):
            results.append(
                Result(
                    name=f"extraction/{name}",
                    value=float(values.mean()),
                    n=n,
                    ci=mean_interval(values, documents),
                    seed=found.seed,
                    dataset="FakeDocuments",
                    attack=setting,
                )
            )
        certain = size(each.significant(false_discoveries), documents)
        results.append(
            Result(
                name="extraction/memorised_for_certain",
                value=float(certain.count),
                n=n,
                unit="canaries",
                ci=certain.interval,
                seed=found.seed,
                dataset="FakeDocuments",
                attack={**setting, "false_discoveries": false_discoveries},
            )
        )
    return results
