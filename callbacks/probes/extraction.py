"""`ExtractionProbe`: at epoch ends, which training answers can be extracted from a document model."""

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
from qpriv.metrics.intervals import mean_interval
from qpriv.metrics.memorisation import Flags, memorised, size
from qpriv.result import Result, Scalar

ALIVE = 16
"""Whole pages on which a model must say something sensible before its silence counts."""
NEAR = 0.9
"""ANLS from which an answer is nearly the canary."""
EXTRACTED, FIRST = "extracted.json", "first_epoch.json"


@dataclass(eq=False, repr=False, kw_only=True)
class ExtractionProbe(Probe):
    """Asks a document model for training answers over pages from which they were erased.

    Figures: ``extraction/extractable`` (greedy answer equal to the erased one) and its personal
    and unique personal parts, ``extraction/near_verbatim``, ``extraction/exposure`` (mean bits
    among the canaries of the same kind), ``extraction/first_epoch`` (median epoch at which the
    extractable ones became so). With the file of a run without the canaries as ``baseline`` also
    ``extraction/memorised`` and its parts.

    Args:
        max_samples: Canaries asked for.
        baseline: ``extracted.json`` of a run of the same recipe that left the canaries out.
        ranking: Measure exposure, which asks for every canary with every answer of its kind.
        max_seconds: Not used: one pass has no budget.
        log_private: Keep answers and the epochs at which they leaked in the run folder.
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
        """Raise a `ConfigError` for a module without document model, or data without canaries."""
        require_document_victim(module)
        require_canaries(datamodule)

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return the one pass."""
        return [["pass"]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Ask for every canary.

        Raises:
            RuntimeError: If the model says nothing sensible even about whole pages: it would
                extract nothing and look perfectly private.
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
        """Return the median first epoch; keys, no answers, are kept beside the results."""
        visit.folder.mkdir(parents=True, exist_ok=True)
        path = visit.folder / FIRST
        known: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        # what an earlier training in this folder wrote about later epochs is not ours
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
        documents = _documents(canaries)
        return Result(
            name=f"extraction/{name}",
            value=float(np.mean(values)),
            n=len(set(documents)),
            unit=unit,
            ci=mean_interval(values, documents),
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
