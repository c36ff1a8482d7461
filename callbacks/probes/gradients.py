"""`GradientInversionProbe`: recover labels and images from shared gradients at epoch ends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from callbacks.probes.probe import Probe, Visit
from qpriv.attacks.gradients.cuts import attack_cut
from qpriv.attacks.gradients.report import Knowledge
from qpriv.attacks.gradients.updates import attack_updates
from qpriv.attacks.observation import one_per_image
from qpriv.attacks.victim import AttackData, Victim
from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError
from qpriv.key import Scalar
from qpriv.paradigms import Federated
from qpriv.result import Result

Surface = Literal["update", "cut"]


@dataclass(eq=False, repr=False, kw_only=True)
class GradientInversionProbe(Probe):
    """Attacks the updates a federated client would send, and the gradients that cross the cuts.

    Metrics are ``attack/gradient/<name>`` with the names of `attack_updates` and `attack_cut`.
    Each result states its threat model, its prior and the norm of the attacked gradients, because
    late in training gradients shrink and reveal less. The cuts are the victim's: one in split
    learning, two in a U-shaped split.

    Args:
        max_samples: Largest number of training samples to attack, one at a time; None for all.
        auxiliary_samples: Public scenes that give the attacker answers and words.
        surfaces: Gradients to attack: the ``update`` of a federated client, the gradient at a
            ``cut``.
        candidates: Number of answers or images that a candidate attack chooses from.
        stand_ins: Number of the attacker's images that replace the client's for each answer.
        max_seconds: Not used: the attack trains nothing.
        log_private: Has no effect: the probe writes no private data.

    Raises:
        ConfigError: If there is no surface, or too few candidates, stand-ins or auxiliary scenes.
    """

    name: ClassVar[str] = "gradient"
    max_samples: int | None = 32
    auxiliary_samples: int = 400
    surfaces: tuple[Surface, ...] = ("update", "cut")
    candidates: int = 16
    stand_ins: int = 4

    def __post_init__(self) -> None:
        """Check the settings before anything is attacked."""
        super().__post_init__()
        if self.candidates < 2 or self.stand_ins < 1 or not self.surfaces:
            raise ConfigError(
                f"{self.candidates} candidates, {self.stand_ins} stand-ins, "
                f"surfaces {self.surfaces}",
                remedy="choose 2 or more, 1 or more, and at least one surface",
            )
        self.at_least(auxiliary_samples=max(self.candidates, self.stand_ins))

    def check(self, victim: Victim, data: AttackData) -> None:
        """Raise a `ConfigError` for a cut beyond the model, or with no trained layer before it."""
        if "cut" not in self.surfaces:
            return
        victim.channel.check(victim.model)
        if 0 in victim.channel.layers:
            raise ConfigError("no gradient returns at cut 0", remedy="cut at layer 1 or later")

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return one work item for the update, and one per cut."""
        items = ["update"] if "update" in self.surfaces else []
        if "cut" in self.surfaces:
            items += [f"cut={cut}" for cut in visit.victim.channel.layers]
        return [items]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Attack one surface."""
        samples = self._drawn(one_per_image(visit.data.members()), self.max_samples)
        public = self._drawn(one_per_image(visit.data.auxiliary()), self.auxiliary_samples)
        if len(public) < max(self.candidates, self.stand_ins) or not samples:
            raise ConfigError(
                f"{len(public)} auxiliary scenes, {len(samples)} members",
                remedy="give the data module more auxiliary scenes, or ask for fewer candidates",
            )
        victim = visit.victim
        knowledge = Knowledge.of(victim.model, public, self.candidates)
        own: dict[str, Scalar] = {}
        if item == "update":
            stand_ins = public[: self.stand_ins]
            figures = attack_updates(victim, samples, knowledge, stand_ins, visit.seed)
            # only federated parties send updates
            federated = victim.channel.paradigm == Federated.label
            read = "update" if federated else "hypothetical:update"
        else:
            cut = int(item.removeprefix("cut="))
            own = self.at_cut(visit, cut)
            figures = attack_cut(victim, samples, knowledge, cut, self.candidates, visit.seed)
            read = victim.channel.label
        origin = f"{samples[0].dataset}/{samples[0].split}"
        return [
            replace(
                figure,
                name=f"attack/gradient/{figure.name}",
                dataset=origin,
                channel=read,
                setting=own,
            )
            for figure in figures
        ]

    def _drawn(self, samples: Sequence[VQASample], count: int | None) -> list[VQASample]:
        """Return a random choice of samples, the same at every epoch."""
        order = np.random.default_rng(self.seed).permutation(len(samples))
        return [samples[number] for number in order[:count]]
