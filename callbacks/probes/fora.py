"""`ForaProbe`: reconstruct images from the activations that crossed a cut, at epoch ends."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch

from callbacks.probes.attack_split import AttackSplit
from callbacks.probes.cache import save_state
from callbacks.probes.media import picture_grid
from callbacks.probes.probe import Probe, Visit
from callbacks.probes.recognition import Recognition
from qpriv.attacks.observation import Observation, Scenes, public_client, scenes
from qpriv.attacks.reconstruction.alignment import Alignment
from qpriv.attacks.reconstruction.fora import (
    ATTACK_THROUGH,
    Client,
    FeatureInversion,
    Training,
)
from qpriv.attacks.reconstruction.residual import residual_report
from qpriv.attacks.reconstruction.scoring import (
    Baselines,
    reconstruction_report,
)
from qpriv.attacks.reconstruction.simulator import ServerLoss
from qpriv.attacks.victim import AttackData, Victim
from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError
from qpriv.key import Scalar
from qpriv.result import Result

PICTURES = 8


@dataclass(eq=False, repr=False, kw_only=True)
class ForaProbe(Probe):
    """Trains one inverter per cut under the victim's policy, and scores it on private scenes.

    ``ForaProbe()`` is FORA as published (``client="substitute"``). The prefix of the metrics
    depends on ``client``: ``attack/fora/<name>`` for ``substitute``, ``attack/sdar/<name>`` for
    ``simulator`` and ``attack/supervised_inversion/<name>`` for ``supervised``, which is the
    upper bound for this decoder. The names are those of `reconstruction_report`,
    `residual_report`, `recognition_report` and `floors_by_knowledge`. Each epoch end continues
    the training of the inverter.

    Args:
        max_samples: Largest number of private scenes to reconstruct; None for all.
        auxiliary_samples: Largest number of public scenes to train on; None for all.
        client: The client that produces the inverter's training activations: ``substitute``
            (FORA) is the public base model, aligned to the activations that crossed;
            ``simulator`` (SDAR) is a substitute that also learns from the server's layers and
            labels; ``supervised`` is the true client.
        knows_positions: Whether the attacker knows which patches were kept.
        steps: Optimiser steps at each epoch end.
        alignment_steps: Optimiser steps that align the substitute, at each epoch end.
        batch_size: Scenes per step.
        learning_rate: Peak learning rate.
        sensitive_weight: Weight added to the training error inside sensitive boxes; errors weigh
            1 elsewhere.
        patch_size: Side of a reconstructed patch in pixels.
        max_seconds: Time budget in seconds; the inverter's training stops when it is over.
        log_private: Write reconstructions into the run folder.

    Raises:
        ConfigError: If a number is out of range.
    """

    name: ClassVar[str] = "fora"
    reads_channel: ClassVar[bool] = True
    # training continues across epochs, so this setting is part of the attack's budget
    every_n_epochs: int = 1
    auxiliary_samples: int | None = 2000
    client: Client = "substitute"
    knows_positions: bool = True
    steps: int = 600
    alignment_steps: int = 300
    batch_size: int = 64
    learning_rate: float = 1.5e-3
    sensitive_weight: float = 4.0
    patch_size: int = 8

    def __post_init__(self) -> None:
        """Check the settings before anything is attacked."""
        super().__post_init__()
        self.at_least(auxiliary_samples=1)
        self._alignment = Alignment(steps=self.alignment_steps)
        self._training = Training(
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            sensitive_weight=self.sensitive_weight,
        )

    def check(self, victim: Victim, data: AttackData) -> None:
        """Raise a `ConfigError` for a cut beyond the model, or a simulator without labels."""
        victim.channel.check(victim.model)
        if self.client == "simulator" and not victim.channel.labels_cross:
            raise ConfigError(
                "a U-shaped split's server has neither labels nor the layers that answer",
                where="client",
                remedy="take client: substitute there, or attack a split with one cut",
            )

    @property
    def metric_prefix(self) -> str:
        """Return the name of the attack: FORA, SDAR or the supervised upper bound."""
        return ATTACK_THROUGH[self.client].name

    @property
    def _knowledge(self) -> str:
        return "known" if self.knows_positions else "unknown"

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return one work item per cut."""
        return [[f"cut={cut}" for cut in visit.victim.channel.layers]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Continue the training of one cut's inverter, and score it."""
        cut = int(item.removeprefix("cut="))
        split = AttackSplit.of(
            visit.data, auxiliary=self.auxiliary_samples, targets=self.max_samples, one_each=True
        )
        auxiliary = scenes(visit.victim.model, split.auxiliary, self.patch_size)
        seen = visit.observe(split.targets, cut)
        model, supervised = visit.victim.model, self.client == "supervised"
        client = nullcontext if supervised else partial(public_client, model)
        with client():
            sent = visit.observe(split.auxiliary, cut, draw=1)
        attack = self._trained(visit, cut, split.auxiliary, auxiliary, sent, seen)
        truth = scenes(visit.victim.model, split.targets, self.patch_size)
        restored = attack.invert(seen)
        floors = Baselines.of(auxiliary)
        regions = truth.regions(seen.kept, seen.grid)
        report = reconstruction_report(restored, truth, regions, floors)
        report += residual_report(restored, truth, seen.kept, seen.grid, auxiliary)
        report += Recognition(
            visit,
            cut,
            attack,
            client,
            split.auxiliary,
            sent,
            auxiliary,
            self.patch_size,
            self.knows_positions,
        ).report(seen, truth, restored)
        if self.log_private:
            self._save_pictures(visit, cut, truth, restored)
        own = self.at_cut(visit, cut)
        return [self._named(result, attack, cut, split.origin, own) for result in report]

    def _trained(
        self,
        visit: Visit,
        cut: int,
        known: Sequence[VQASample],
        truth: Scenes,
        seen: Observation,
        private: Observation,
    ) -> FeatureInversion:
        attack = FeatureInversion(
            client=self.client,
            knows_positions=self.knows_positions,
            training=self._training,
            alignment=self._alignment,
            patch_size=self.patch_size,
            seed=visit.seed,
        )
        taught = self.client == "simulator"
        task = ServerLoss(visit.victim.model.eval(), seen, known) if taught else None
        carried = visit.earlier(f"inverter-cut={cut}.pt")
        if carried is not None:
            attack.load_state_dict(torch.load(carried, weights_only=True), seen)
        attack.fit(
            seen, truth, private=private, task=task, deadline=visit.deadline, watch=visit.watch
        )
        save_state(attack.state_dict(), visit.path(f"inverter-cut={cut}.pt"))
        return attack

    def _named(
        self,
        result: Result,
        attack: FeatureInversion,
        cut: int,
        origin: str,
        own: dict[str, Scalar],
    ) -> Result:
        settings = {
            **attack.threat_model.settings(),
            "client": self.client,
            "cut": cut,
            "steps": attack.steps_done,
            "short": attack.short,
            **result.attack,
        }
        return replace(
            result,
            name=f"attack/{self.metric_prefix}/{result.name}",
            dataset=origin,
            setting=own,
            attack=settings,
            note=result.note or ("short attacker" if attack.short else ""),
        )

    def _save_pictures(self, visit: Visit, cut: int, truth: Scenes, restored: torch.Tensor) -> None:
        with_face = [row for row, box in enumerate(truth.faces) if box is not None]
        rows = (with_face or list(range(len(truth))))[:PICTURES]
        self.keep_picture(
            visit,
            f"cut={cut}",
            picture_grid([truth.pictures[rows], restored[rows]]),
            kind="reconstruction",
            caption=f"Above the private pictures, below what {self.metric_prefix.replace('_', ' ')} makes of "
            f"cut {cut}, policy {visit.victim.policy.label}, positions {self._knowledge}.",
            alt=f"{len(rows)} pairs of scenes and their reconstructions",
            setting=self.at_cut(visit, cut),
        )
