"""`AttributeProbe`: at epoch ends, what the activations at a cut tell of a sample's attributes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from callbacks.probe import OnError, Probe, Visit
from qpriv.attacks.attributes import THREAT, Evidence, attribute_report, pooled
from qpriv.attacks.observation import observe
from qpriv.attacks.side_channel import Target
from qpriv.attacks.victim import AttackData, Victim
from qpriv.boundary.crossing import check_cut
from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError
from qpriv.result import Result


class AttributeProbe(Probe):
    """Reads attributes off what crosses, beside what is told without any activation.

    Figures are ``attack/attributes/<name>`` with the names of `attribute_report`, one set a cut.

    Args:
        every_n_epochs: Measure after every n-th epoch, and after the last one.
        max_samples: Private samples to tell attributes of.
        auxiliary_samples: Samples the attacker learns on.
        targets: Attributes: ``sensitive`` (a face is in the picture), ``question_type``,
            ``answer``.
        seed: Seed of the attack.
        max_seconds: Not used: probes of one and two layers have no budget.
        on_error: ``warn`` or ``stop``.
        log_private: Has no effect: nothing private is shown.
        audit_isolation: Hash the victim before and after.

    Raises:
        ConfigError: If a number is out of its range, or there is no target.
    """

    name: ClassVar[str] = "attributes"

    def __init__(
        self,
        every_n_epochs: int = 1,
        max_samples: int | None = 1000,
        auxiliary_samples: int | None = 2000,
        targets: tuple[Target, ...] = ("sensitive", "question_type"),
        seed: int = 0,
        max_seconds: float = 600.0,
        on_error: OnError = "warn",
        log_private: bool = False,
        audit_isolation: bool = False,
    ) -> None:
        super().__init__(
            every_n_epochs=every_n_epochs,
            max_samples=max_samples,
            seed=seed,
            max_seconds=max_seconds,
            on_error=on_error,
            log_private=log_private,
            audit_isolation=audit_isolation,
        )
        if auxiliary_samples is not None and auxiliary_samples < 1:
            raise ConfigError(
                f"auxiliary_samples is {auxiliary_samples}", remedy="choose 1 or more, or null"
            )
        if not targets:
            raise ConfigError("there is no target", remedy="name one, such as sensitive")
        self.auxiliary_samples, self.targets = auxiliary_samples, targets

    def check(self, victim: Victim, data: AttackData) -> None:
        """Refuse cuts beyond the model's depth."""
        for cut in victim.cuts:
            check_cut(victim.model, cut)

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return one item a cut."""
        return [[f"cut={cut}" for cut in visit.victim.cuts]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Train the probes of one cut and score them on private samples."""
        cut = int(item.removeprefix("cut="))
        known = list(visit.data.auxiliary())[: self.auxiliary_samples]
        private = list(visit.data.targets())[: self.max_samples]
        if not known or not private:
            raise ConfigError("no auxiliary or no target samples", remedy="check the data module")
        sides = [self._evidence(visit, samples, cut) for samples in (known, private)]
        report = [
            result
            for target in self.targets
            for result in attribute_report(target, sides[0], sides[1], seed=visit.seed)
        ]
        origin = f"{private[0].dataset}/{private[0].split}"
        return [
            replace(
                result,
                name=f"attack/attributes/{result.name}",
                dataset=origin,
                attack={**THREAT.settings(), "cut": cut, **result.attack},
            )
            for result in report
        ]

    def _evidence(self, visit: Visit, samples: Sequence[VQASample], cut: int) -> Evidence:
        victim = visit.victim
        seen = observe(victim.model, victim.policy, samples, cut, encode=victim.encode)
        return Evidence(samples, pooled(seen.transcript, cut))
