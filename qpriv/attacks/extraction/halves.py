"""Memorisation and simplicity of every canary, from K trainings on halves of the canaries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from qpriv.errors import ConfigError, DataError
from qpriv.histogram import Histogram
from qpriv.io import write_atomic
from qpriv.metrics.means import mean_result
from qpriv.metrics.memorisation import Flags, Scores, scores, size
from qpriv.models.documents.base import DocumentModel
from qpriv.quantity import Quantity
from qpriv.result import Result, Scalar

from .asking import extract, full_pages
from .contexts import ERASED
from .document_run import Corpus, DocumentRun, kept_canaries
from .outcome import Outcome

QUANTITIES = (
    Quantity(
        name="extraction/memorisation",
        title="Memorisation",
        meaning="How much likelier a canary comes out of models that saw it; mean over canaries.",
        direction="leak",
    ),
    Quantity(
        name="extraction/simplicity",
        title="Simplicity",
        meaning="How likely it comes out of models of either kind; mean over canaries.",
    ),
    Quantity(
        name="extraction/memorised_for_certain",
        title="Memorised for certain",
        meaning="Canaries of which it is certain after all tests.",
        unit="canaries",
        direction="leak",
    ),
)
"""Figures of models that were trained on halves of the canaries."""

HALF_FILE = "half.json"
BINS = 10
"""Bins of a histogram along either axis."""


@dataclass(frozen=True)
class HalfOutcome:
    """What the model of one half says.

    Args:
        resolution: Training resolution.
        seed: Seed of the draw and of the training.
        number: Which of the K trainings it is.
        splits: Their number K.
        kept: Canaries it was trained on.
        erased: Canaries it says on pages without them.
        whole: Canaries it says on whole pages.
        documents: Document of each canary.
    """

    resolution: float
    seed: int
    number: int
    splits: int
    kept: list[bool]
    erased: list[bool]
    whole: list[bool]
    documents: list[str]


@dataclass(frozen=True)
class HalvesScores:
    """Scores of all canaries.

    Args:
        resolution: Training resolution of the halves.
        seed: Their seed.
        splits: Their number K.
        extraction: M_E and S_E, on pages without the answer.
        whole: M and S, on whole pages.
        documents: Document of each canary.
    """

    resolution: float
    seed: int
    splits: int
    extraction: Scores
    whole: Scores
    documents: list[str]


def measure_half(model: DocumentModel, run: DocumentRun, corpus: Corpus, seed: int) -> HalfOutcome:
    """Ask a model that was trained on half of the canaries for all of them."""
    assert run.half is not None
    canaries = corpus.canaries
    samples = [canaries.sample(number) for number in range(len(canaries.canaries))]
    return HalfOutcome(
        run.resolution,
        seed,
        run.half.number,
        run.half.splits,
        kept_canaries(run.half, corpus, seed).tolist(),
        extract(model, canaries.queries(ERASED)).exact.tolist(),
        extract(model, full_pages(samples)).exact.tolist(),
        [sample.group_id for sample in samples],
    )


def write_half(outcome: HalfOutcome, folder: Path) -> None:
    """Keep what a half said in its run folder."""
    write_atomic(folder / HALF_FILE, msgspec.json.encode(outcome))


def read_half(folder: Path) -> HalfOutcome:
    """Return what the half of a run folder said.

    Raises:
        DataError: If there is no such file, or it was written by another version.
    """
    path = folder / HALF_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=HalfOutcome)
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(
            f"no outcome of a half: {error}",
            where=str(path),
            remedy="give folders of finished `qpriv documents train --half.number ...`",
        ) from error


def halves_scores(outcomes: Sequence[HalfOutcome]) -> HalvesScores:
    """Return the scores of all canaries from the K halves of one training.

    Raises:
        ConfigError: If a half is missing or there twice, or they are of different trainings.
    """
    first = outcomes[0]
    kinds = {(each.resolution, each.seed, each.splits) for each in outcomes}
    if len(kinds) > 1:
        raise ConfigError(
            f"the halves are of {len(kinds)} trainings",
            where="--halves",
            remedy="give those of one resolution, seed and number of splits",
        )
    numbers = sorted(each.number for each in outcomes)
    if numbers != list(range(first.splits)):
        raise ConfigError(
            f"halves {numbers} of {first.splits}",
            where="--halves",
            remedy=f"give each of 0 to {first.splits - 1} once",
        )
    inside, erased, whole = (
        np.array([getattr(each, name) for each in outcomes], dtype=bool)
        for name in ("kept", "erased", "whole")
    )
    return HalvesScores(
        first.resolution,
        first.seed,
        first.splits,
        scores(erased, inside),
        scores(whole, inside),
        first.documents,
    )


def score_results(found: HalvesScores, false_discoveries: float = 0.05) -> list[Result]:
    """Return the figures of some scores, with intervals over documents.

    Args:
        found: The scores.
        false_discoveries: Largest expected share of false ones among those counted.
    """
    documents, n = found.documents, len(set(found.documents))
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
                replace(
                    mean_result(f"extraction/{name}", values, {"document": documents}),
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


def score_histograms(found: HalvesScores, outcome: Outcome | None = None) -> list[Histogram]:
    """Return counts over M_E and S_E: of all canaries, and of E - G and G where they are known.

    Args:
        found: The scores.
        outcome: A model trained on all canaries and compared with its baselines.

    Raises:
        ConfigError: If the model was compared with none, or was asked for other canaries.
    """
    sets: dict[str, Flags | None] = {"all canaries": None}
    if outcome is not None:
        if outcome.memorised is None or len(outcome.memorised) != len(found.documents):
            raise ConfigError(
                f"{outcome.model} was compared with no baseline, or asked for other canaries",
                where="--trained",
                remedy="give a run of the same documents that has --baselines",
            )
        sets["E - G"] = np.array(outcome.memorised, dtype=bool)
        sets["G"] = np.array(outcome.generalised, dtype=bool)
    return [
        Histogram(
            name="extraction/scores",
            n=len(set(found.documents)),
            seed=found.seed,
            dataset="FakeDocuments",
            setting={"resolution": found.resolution, "splits": found.splits, "set": label},
            of=label,
            counts=tuple(map(tuple, found.extraction.histogram(chosen, BINS).tolist())),
            rows=("memorisation", -1, 1),
            columns=("simplicity", 0, 2),
        )
        for label, chosen in sets.items()
    ]
