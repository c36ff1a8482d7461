"""`ExtractionProbe`: extract training answers from a document model at epoch ends."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import lightning as L
import numpy as np

from callbacks.probes.probe import Probe, Visit
from callbacks.probes.requirements import require_canaries, require_document_victim
from qpriv.attacks.extraction.asking import degenerate, extract, full_pages, generate
from qpriv.attacks.extraction.candidate_ranking import rank_candidates
from qpriv.attacks.extraction.contexts import ERASED, CanarySet
from qpriv.errors import DataError
from qpriv.metrics.functional import anls
from qpriv.metrics.means import RATE, mean_result
from qpriv.metrics.memorisation import Flags, memorised, size
from qpriv.result import Result, Scalar

ALIVE = 16
"""Number of unerased pages on which the model must first give sensible answers."""
NEAR = 0.9
"""Smallest ANLS at which an answer counts as nearly the canary."""
EXTRACTED, FIRST = "extracted.json", "first_epoch.json"


@dataclass(eq=False, repr=False, kw_only=True)
class ExtractionProbe(Probe):
    """Asks a document model for training answers that were erased from their pages.

    Metrics: ``extraction/extractable`` (canaries whose greedy answer equals the erased one), with
    ``_pii`` and ``_unique_pii`` for personal and for unique personal canaries;
    ``extraction/near_verbatim``; ``extraction/exposure`` (mean in bits, ranked among canaries of
    the same kind); ``extraction/first_epoch`` (median epoch at which a canary first became
    extractable). With ``baseline`` also ``extraction/memorised`` and its ``_pii`` and
    ``_unique_pii`` parts.

    Args:
        max_samples: Largest number of canaries to ask for; None for all.
        baseline: ``extracted.json`` of a run with the same recipe that left the canaries out.
        ranking: Measure exposure, which scores every answer of a kind for every canary.
        max_seconds: Not used: a single pass needs no time budget.
        log_private: Save the answers in the run folder.

    Raises:
        DataError: If ``baseline`` is not a list of extracted canaries.
    """

    name: ClassVar[str] = "extraction"
    max_samples: int | None = None
    baseline: Path | None = None
    ranking: bool = True

    def __post_init__(self) -> None:
        """Check the settings before anything is attacked."""
        super().__post_init__()
        self._generalised = _read_keys(self.baseline) if self.baseline else None

    def require(self, module: L.LightningModule, datamodule: object) -> None:
        """Raise a `ConfigError` if the module has no document model or the data no canaries."""
        require_document_victim(module)
        require_canaries(datamodule)

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return one work item: a single pass."""
        return [["pass"]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Ask for every canary.

        Raises:
            RuntimeError: If the model gives no sensible answers even for unerased pages. Such a
                model reveals nothing and would look perfectly private.
        """
        model = require_document_victim(visit.module).model
        canaries = require_canaries(visit.data).canaries()
        canaries = replace(canaries, canaries=canaries.canaries[: self.max_samples])
        whole = [canaries.sample(n) for n in range(min(ALIVE, len(canaries.canaries)))]
        broken = degenerate([best for (best,) in generate(model, full_pages(whole))])
        if broken:
            raise RuntimeError(broken)
        exact = extract(model, canaries.queries(ERASED, self.seed)).exact
        results = self._sizes(canaries, "extractable", exact)
        if self._generalised is not None:
            known = np.array([c.key in self._generalised for c in canaries.canaries])
            results += self._sizes(canaries, "memorised", memorised(exact, known))
        results.append(self._near(visit, canaries))
        if self.ranking:
            bits = [ranking.exposure for ranking in rank_candidates(model, canaries)]
            results.append(self._mean(canaries, "exposure", bits, "bits"))
        results.append(self._first_epoch(visit, canaries, exact))
        return [replace(result, attack=self._attack) for result in results]

    @property
    def _attack(self) -> dict[str, Scalar]:
        return {"threat_model": "page without the answer", "fill": "white", "decoding": "greedy"}

    def _sizes(self, canaries: CanarySet, name: str, flags: Flags) -> list[Result]:
        documents = _documents(canaries)
        personal = np.array([canary.pii is not None for canary in canaries.canaries])
        unique = personal & np.array([canary.unique for canary in canaries.canaries])
        parts = {name: flags, f"{name}_pii": flags & personal, f"{name}_unique_pii": flags & unique}
        return [
            Result(
                name=f"extraction/{part}",
                value=float(size(chosen, documents).count),
                n=len(set(documents)),
                ci=size(chosen, documents).interval,
                unit="canaries",
            )
            for part, chosen in parts.items()
        ]

    def _near(self, visit: Visit, canaries: CanarySet) -> Result:
        model = require_document_victim(visit.module).model
        said = generate(model, canaries.queries(ERASED, self.seed))
        texts = [best.text for (best,) in said]
        close = np.array(
            [
                anls(text, [c.answer]) >= NEAR
                for text, c in zip(texts, canaries.canaries, strict=True)
            ]
        )
        if self.log_private:
            rows = {c.key: text for c, text in zip(canaries.canaries, texts, strict=True)}
            visit.folder.mkdir(parents=True, exist_ok=True)
            path = visit.folder / f"answers-epoch={visit.epoch}.json"
            path.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
        return self._sizes(canaries, "near_verbatim", close)[0]

    def _first_epoch(self, visit: Visit, canaries: CanarySet, exact: Flags) -> Result:
        """Return the median first epoch; save the keys of canaries, not their answers."""
        visit.folder.mkdir(parents=True, exist_ok=True)
        path = visit.folder / FIRST
        known: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        # later epochs were written by an earlier training in this folder: drop them
        first = {key: epoch for key, epoch in known.items() if epoch < visit.epoch}
        keys = [c.key for c, said in zip(canaries.canaries, exact.tolist(), strict=True) if said]
        for key in keys:
            first.setdefault(key, visit.epoch)
        path.write_text(json.dumps(first))
        (visit.folder / EXTRACTED).write_text(json.dumps(keys))
        name = "extraction/first_epoch"
        if not keys:
            return Result(name=name, value=None, n=0, unit="epochs", status="not applicable")
        median = float(np.median([first[key] for key in keys]))
        return Result(name=name, value=median, n=len(keys), unit="epochs")

    def _mean(
        self, canaries: CanarySet, name: str, values: Sequence[float], unit: str = ""
    ) -> Result:
        units = {"document": _documents(canaries)}
        return mean_result(
            f"extraction/{name}", values, units, unit=unit, bounds=None if unit else RATE
        )


def _documents(canaries: CanarySet) -> list[str]:
    return [canaries.sample(number).group_id for number in range(len(canaries.canaries))]


def _read_keys(path: Path) -> frozenset[str]:
    try:
        return frozenset(json.loads(path.read_bytes()))
    except (OSError, json.JSONDecodeError, TypeError) as error:
        raise DataError(
            f"no list of extracted canaries: {error}",
            where=str(path),
            remedy="give extracted.json of a run with include_canaries: false",
        ) from error
