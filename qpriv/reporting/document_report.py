"""The page of a document study: its tables, and where each canary lies by memory and simplicity."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from qpriv.attacks.extraction_contexts import CanarySet
from qpriv.metrics.memorisation import Flags
from qpriv.result import append_results

from .document_outcome import Outcome
from .document_results import Groups, document_pairs, study_results
from .document_scores import StudyScores, score_results
from .document_tables import document_tables, table
from .figures.drawing import blank
from .figures.svg import INK, SERIES, Picture, inline, style

BINS = 10
"""Bins of a histogram along either axis."""


def write_document_report(
    folder: Path,
    outcomes: Sequence[Outcome],
    scores: Sequence[StudyScores],
    canaries: CanarySet,
    union: bool = False,
) -> str:
    """Write ``results.jsonl`` and ``report.html``, and return the main table as Markdown.

    Both are computed anew from what the runs measured.

    Args:
        folder: Where they go.
        outcomes: Outcomes of the runs.
        scores: Scores over splits; may be none.
        canaries: The canaries.
        union: Take G as the union over the f_G of all seeds.
    """
    documents = Groups.of(canaries).documents
    results = study_results(outcomes, canaries, union)
    results += [figure for each in scores for figure in score_results(each, documents)]
    path = folder / "results.jsonl"
    path.unlink(missing_ok=True)
    append_results(path, results)
    pictures = [picture for each in scores for picture in histograms(each, outcomes, union)]
    environment = Environment(
        loader=PackageLoader("qpriv.reporting"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    page = environment.get_template("documents.html.j2").render(
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        canaries=len(documents),
        documents=len(set(documents)),
        tables=document_tables(results),
        scores=[figure for each in scores for figure in score_results(each, documents)],
        pictures=[(picture, Markup(picture.svg)) for picture in pictures],
    )
    (folder / "report.html").write_text(page, encoding="utf-8")
    return table(results)


def histograms(
    scores: StudyScores, outcomes: Sequence[Outcome], union: bool = False
) -> Iterator[Picture]:
    """Yield 2-D histograms of M_E and S_E: of all canaries, of E - G and of G.

    The sets are those of f and f_G at the resolution of the splits, of the same seed where it was
    run; without such a pair all canaries alone are shown.

    Args:
        scores: The scores.
        outcomes: Outcomes of the study's runs.
        union: Take G as the union over the f_G of all seeds.
    """
    sets: dict[str, Flags | None] = {"all canaries": None}
    pairs = [
        pair
        for pair in document_pairs(outcomes, union)
        if (pair.trained.kind, pair.trained.stopping) == ("f", "fixed")
        and pair.trained.resolution == scores.resolution
    ]
    pairs.sort(key=lambda pair: pair.trained.seed != scores.seed)
    if pairs:
        sets |= {"E - G": pairs[0].memorised(), "G": pairs[0].generalised()}
    for number, (label, chosen) in enumerate(sets.items()):
        key = f"scores-{scores.resolution:g}-{scores.seed}-{scores.splits}-{number}".replace(
            ".", "-"
        )
        title = f"{label}, resolution {scores.resolution:g}, {scores.splits} splits"
        yield _histogram(key, title, scores.extraction.histogram(chosen, BINS))


def _histogram(key: str, title: str, counts: NDArray[np.int64]) -> Picture:
    """Return the picture of counts over memorisation (rows) and simplicity (columns)."""
    with style():
        canvas, axes = blank("simplicity S_E", "memorisation M_E")
        axes.set_xlim(0, 2)
        axes.set_ylim(-1, 1)
        most = max(1, int(counts.max()))
        for (row, column), count in np.ndenumerate(counts):
            if count:
                corner = 2 * column / BINS, 2 * row / BINS - 1
                shade = 0.15 + 0.6 * np.log1p(count) / np.log1p(most)  # counts differ by decades
                axes.add_patch(
                    Rectangle(corner, 2 / BINS, 2 / BINS, facecolor=SERIES[0], alpha=shade)
                )
                axes.text(corner[0] + 1 / BINS, corner[1] + 1 / BINS, str(count), color=INK,
                          ha="center", va="center", fontsize=9)  # fmt: skip
        svg = inline(canvas, key, title, describe(counts))
    caption = "Numbers of canaries. What nobody says without training on it has S_E = M_E."
    return Picture(key, title, caption, svg)


def describe(counts: NDArray[np.int64]) -> str:
    """Return a histogram in words, the fullest cells first.

    >>> describe(np.diag([0] * 5 + [3] + [0] * 4)[:, ::-1])
    '3 canaries: 3 with M_E from 0.0 and S_E from 0.8'
    """
    cells = sorted(((int(n), *at) for at, n in np.ndenumerate(counts) if n), reverse=True)
    said = "; ".join(
        f"{n} with M_E from {2 * row / BINS - 1:.1f} and S_E from {2 * column / BINS:.1f}"
        for n, row, column in cells
    )
    return f"{int(counts.sum())} canaries: {said}" if said else "no canaries"
