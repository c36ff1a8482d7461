"""`IrrelevantQuestionProbe`: ask questions that the image cannot answer, at epoch ends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from callbacks.probes.probe import Probe, Visit
from qpriv.attacks.irrelevant_questions import (
    KINDS,
    SUBSET,
    THREAT,
    Asked,
    Kind,
    RefusalSet,
    answer_report,
    ask,
    irrelevant,
    load_phrases,
    privacy_subset,
)
from qpriv.attacks.observation import batches, box_coverage, one_per_image
from qpriv.attacks.query import QueryAccess
from qpriv.attacks.victim import AttackData, Victim
from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError
from qpriv.metrics.means import IMAGE_GROUP, RATE, mean_result
from qpriv.metrics.sensitivity import (
    AREA_VISIBLE,
    FACES_TOUCHED,
    SENSITIVE_COVERAGE,
    TOKENS_KEPT,
    TOKENS_TOUCHING,
    is_touched,
    surviving_share,
    visible_area,
)
from qpriv.models.encoder_record import read_encoders
from qpriv.pruning.predictor import DynamicThresholdPredictor
from qpriv.quantity import Quantity
from qpriv.result import Result


@dataclass(eq=False, repr=False, kw_only=True)
class IrrelevantQuestionProbe(Probe):
    """Asks cross-image, nonsense and false-premise questions about private images.

    Metrics are ``attack/irrelevant_questions/<kind>_<name>``. The kinds are ``own`` (the control),
    ``cross_image``, ``nonsense`` and ``false_premise``. The names are ``hallucination_rate``,
    ``refusal_rate``, ``empty_rate``, and, because the question steers the pruning,
    ``sensitive_tokens_kept`` (the share of truly sensitive tokens that crosses under the
    question), ``sensitive_tokens_touching``, ``sensitive_area_visible`` and ``faces_touched`` as
    in `SensitivityProbe`. ``privacy_subset_<kind>_<name>`` repeats the rates on the privacy
    subset: the images with the highest maximum patch sensitivity.

    Args:
        max_samples: Largest number of images to ask about; None for all.
        subset_size: Images in the privacy subset.
        predictor: Folder of a trained predictor whose sensitivity branch chooses the privacy
            subset; null uses the policy's own scores. If the policy has none, there is no subset.
        phrases: File of questions and refusals that replaces the shipped one.
        max_new_tokens: Longest answer in tokens.
        max_seconds: Not used: one pass per kind needs no time budget.
        log_private: Has no effect: the probe writes no answers.

    Raises:
        ConfigError: If a number is out of range.
        DataError: If the file of phrases is missing or broken.
        ModelError: If the folder holds no predictor.
    """

    name: ClassVar[str] = "irrelevant_questions"
    max_samples: int | None = 250
    subset_size: int = 50
    predictor: Path | None = None
    phrases: Path | None = None
    max_new_tokens: int = 10

    def __post_init__(self) -> None:
        """Check the settings before anything is attacked."""
        super().__post_init__()
        self.at_least(subset_size=1, max_new_tokens=1)
        self._phrases = load_phrases(self.phrases)
        self._refusals = RefusalSet([p for own in self._phrases.values() for p in own.refusals])
        self._predictor = (
            DynamicThresholdPredictor.from_pretrained(self.predictor) if self.predictor else None
        )

    def check(self, victim: Victim, data: AttackData) -> None:
        """Raise a `ConfigError` for a predictor trained on another sensitivity encoder."""
        if self._predictor is None:
            return
        trained, given = self._predictor.config.sizes.sensitivity, victim.model.feature_sizes
        if trained != given.sensitivity:
            raise ConfigError(
                f"the predictor takes {trained} sensitivity values a patch, "
                f"the backbone gives {given.sensitivity}",
                remedy="name a predictor that was trained on this backbone",
            )
        encoders = self._predictor.encoders
        if encoders is None:  # older folders do not record their encoders
            return
        own, _ = read_encoders(victim.model.backbone)
        if "sensitivity" in encoders.unlike(own):
            raise ConfigError(
                f"the predictor was trained on the sensitivity encoder of {encoders.backbone}",
                remedy="name a predictor that was trained on this backbone",
            )

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return one work item per kind of question."""
        return [list(KINDS)]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Ask one kind of question about every image."""
        kind: Kind = next(kind for kind in KINDS if kind == item)
        samples = one_per_image(visit.data.targets())[: self.max_samples]
        if not samples:
            raise ConfigError("no target images", remedy="check the data module")
        victim = visit.victim
        access = QueryAccess.of(victim, seed=visit.seed)
        # the same questions at every epoch, so that only the model changes
        questions = irrelevant(kind, samples, self._phrases, self.seed)
        asked = ask(access, questions, self.max_new_tokens)
        report = answer_report(kind, asked.answers, self._refusals)
        report += self._of_subset(kind, asked, visit, samples)
        report += _surviving(kind, asked, visit, samples)
        return [self._named(result, access, samples[0]) for result in report]

    def _of_subset(
        self, kind: Kind, asked: Asked, visit: Visit, samples: Sequence[VQASample]
    ) -> list[Result]:
        scores = asked.sensitivity if self._predictor is None else self._scores(visit, samples)
        if scores is None:
            note = "the policy scores no sensitivity: name a predictor"
            name = f"{SUBSET}{kind}_refusal_rate"
            return [Result(name=name, value=None, n=0, status="not applicable", note=note)]
        rows = privacy_subset(scores, self.subset_size).tolist()
        report = answer_report(kind, [asked.answers[row] for row in rows], self._refusals)
        return [replace(result, name=SUBSET + result.name) for result in report]

    @torch.no_grad()
    def _scores(self, visit: Visit, samples: Sequence[VQASample]) -> Tensor:
        """Return each image's highest patch sensitivity by the given predictor, ``[n]``."""
        assert self._predictor is not None
        head, scores = self._predictor.sensitivity_head, list[Tensor]()
        for part in batches(samples, 64):
            batch = visit.victim.model.preprocessor(part).to(visit.victim.model.device)
            features = visit.victim.encode(batch).to("cpu", torch.float32)
            scores.append(head.aligned(features).amax(dim=1))
        return torch.cat(scores)

    def _named(self, result: Result, access: QueryAccess, sample: VQASample) -> Result:
        return replace(
            result,
            name=f"attack/irrelevant_questions/{result.name}",
            dataset=f"{sample.dataset}/{sample.split}",
            attack={
                **THREAT.settings(),
                "queries": access.count,
                "refusal_phrases": sum(len(own.refusals) for own in self._phrases.values()),
                **result.attack,
            },
        )


def _surviving(
    kind: Kind, asked: Asked, visit: Visit, samples: Sequence[VQASample]
) -> list[Result]:
    """Return how much of the truly sensitive part crosses under the question."""
    truth = [box_coverage(visit.victim.model.preprocessor, sample) for sample in samples]
    whole = torch.stack([own for own, _ in truth])
    groups = [sample.group_id for sample in samples]
    found = [(TOKENS_KEPT, surviving_share(whole >= SENSITIVE_COVERAGE, asked.kept), groups)]
    if asked.entering is not None:
        boxes = [is_touched(own, row) for (_, own), row in zip(truth, asked.entering, strict=True)]
        owners = [group for group, own in zip(groups, boxes, strict=True) for _ in own]
        found += [
            (TOKENS_TOUCHING, surviving_share(whole > 0, asked.entering), groups),
            (AREA_VISIBLE, visible_area(whole, asked.entering), groups),
            (FACES_TOUCHED, torch.cat(boxes), owners),
        ]
    return [_mean(kind, own, shares, owners) for own, shares, owners in found]


def _mean(kind: Kind, own: Quantity, shares: Tensor, groups: Sequence[str]) -> Result:
    return mean_result(
        f"{kind}_{own.name}", shares.double().numpy(), {IMAGE_GROUP: groups}, bounds=RATE
    )
