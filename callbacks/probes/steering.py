"""`SteeringProbe`: search for the question that makes the client send most of a face."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import ClassVar

import numpy as np

from callbacks.probes.attack_split import AttackSplit
from callbacks.probes.probe import Probe, Visit
from qpriv.attacks.question_library import LEAST, library_words, question_library
from qpriv.attacks.question_search import Asker, Found, Search, leak_of
from qpriv.attacks.steering import THREAT, Asked, Crossed, asking, converse, steering_report
from qpriv.attacks.victim import AttackData, Victim, own_questions
from qpriv.datasets.sample import VQASample
from qpriv.result import Result


@dataclass(frozen=True)
class Steered:
    """The result of steering, for attacks that read the patches that crossed.

    Args:
        samples: The private images, one sample per image, each with its own question.
        found: The questions that were found on other images.
        crossed: For each kind of questions asked, the patches of each image that crossed.
    """

    samples: list[VQASample]
    found: Found
    crossed: dict[Asked, Crossed]


@dataclass(eq=False, repr=False, kw_only=True)
class SteeringProbe(Probe):
    """Searches for the question under which most of the sensitive part crosses.

    The search chooses questions on auxiliary images; the metrics are measured on private images.
    They are ``attack/steering/<asked>_<name>`` with the names of `SensitivityProbe`. ``<asked>``
    is the image's ``own`` question, all of its own questions together (``own_union``), the worst
    ``plain`` question of a library, the ``worst`` string of a hill climb over words, or several
    ``adversarial`` questions together.

    Args:
        max_samples: Largest number of private images; None for all.
        auxiliary_samples: Largest number of the attacker's images to search on; None for all.
        library: Number of plain questions, built from the attacker's own questions and words.
        restarts: Number of hill climbs.
        steps: Largest number of steps per climb.
        edits: Strings tried in each step.
        questions: Number of adversarial questions asked together.
        log_private: Store the found questions in the results.

    Raises:
        ConfigError: If a number is out of range.
    """

    name: ClassVar[str] = "steering"
    max_samples: int | None = 250
    auxiliary_samples: int | None = 160
    library: int = 400
    restarts: int = 4
    steps: int = 30
    edits: int = 24
    questions: int = 4

    reads_channel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the settings before anything is attacked."""
        super().__post_init__()
        self.at_least(auxiliary_samples=1, library=LEAST, restarts=4, steps=1, edits=1, questions=1)

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return one work item: the search."""
        return [["search"]]

    def check(self, victim: Victim, data: AttackData) -> None:
        """Raise a `ConfigError` for a cut beyond the model's depth."""
        victim.channel.check(victim.model)

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Search for questions, ask them about the private images, and measure what crosses."""
        steered = self.steer(visit)
        report = steering_report(visit.victim.model, steered.samples, steered.crossed)
        origin = f"{steered.samples[0].dataset}/{steered.samples[0].split}"
        told = {**THREAT.settings(), "queries": steered.found.questions}
        if self.log_private:
            told["found"] = "; ".join((steered.found.plain, *steered.found.adversarial))
        return [
            replace(own, name=f"attack/steering/{own.name}", dataset=origin, attack=told)
            for own in report
        ]

    def steer(self, visit: Visit) -> Steered:
        """Search for questions on auxiliary images, and ask them about the private ones."""
        split = AttackSplit.of(
            visit.data,
            auxiliary=self.auxiliary_samples,
            targets=self.max_samples,
            one_each=True,
        )
        found, samples = self._search(visit, split.auxiliary), split.targets
        conversations: dict[Asked, list[list[VQASample]]] = {
            "own": [[sample] for sample in samples],
            "own_union": own_questions(visit.data, samples),
            "plain": asking(samples, [found.plain]),
            "worst": asking(samples, [found.worst]),
            "adversarial": asking(samples, found.adversarial),
        }
        victim = visit.victim
        crossed = {
            asked: converse(victim.model, victim.policy, victim.encode, victim.channel, held)
            for asked, held in conversations.items()
        }
        return Steered(samples, found, crossed)

    def _search(self, visit: Visit, auxiliary: Sequence[VQASample]) -> Found:
        """Return the worst questions for the attacker's images, preferring images with a box."""
        victim, known = visit.victim, visit.data.auxiliary()
        library = question_library(known, self.library)
        images = [sample for sample in auxiliary if sample.sensitive_boxes] or auxiliary
        search = Search(
            Asker(victim.model, victim.policy, victim.encode, images, victim.channel.layers[0]),
            leak_of(victim.model, images),
            library,
            library_words(library, known),
            restarts=self.restarts,
            steps=self.steps,
            edits=self.edits,
            over=lambda: monotonic() > visit.deadline,
        )
        return search.run(self.questions, np.random.default_rng(visit.seed))
