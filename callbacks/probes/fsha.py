"""`FshaProbe`: train a twin of the client whose server runs the FSHA hijacking attack."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from callbacks.probes.attack_split import AttackSplit
from callbacks.probes.cache import save_state
from callbacks.probes.media import picture_grid
from callbacks.probes.probe import Probe, Visit
from callbacks.probes.recognition import Recognition
from qpriv.attacks.observation import Observation, Scenes, public_client, scenes
from qpriv.attacks.query import QueryAccess
from qpriv.attacks.reconstruction.detector import SplitGuard
from qpriv.attacks.reconstruction.fsha import Fsha, HijackTraining, PilotKind, PublicScenes
from qpriv.attacks.reconstruction.hijacking import HijackedClient, HijackingServer, hijacked_client
from qpriv.attacks.reconstruction.residual import residual_report
from qpriv.attacks.reconstruction.scoring import (
    Baselines,
    reconstruction_report,
)
from qpriv.attacks.victim import AttackData, Victim
from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError
from qpriv.metrics.means import IMAGE_GROUP, RATE, mean_result
from qpriv.result import Result

PICTURES = 8


@dataclass(eq=False, repr=False, kw_only=True)
class FshaProbe(Probe):
    """Hijacks a twin of the client and reconstructs private scenes from its activations.

    An active server would ruin the training that the probe measures. The attack therefore trains
    a twin: a fresh adapter with the victim's recipe (except the learning rate) and the victim's
    data, with FSHA in place of the server. Each epoch end of a fit continues the training of twin
    and attacker; ``qpriv attack`` starts from scratch.

    Metrics are ``attack/fsha/<name>`` with the names of `reconstruction_report`,
    `residual_report`, `recognition_report` and `floors_by_knowledge`. Three more show what the
    client could notice: ``task_accuracy`` (the twin's accuracy on unseen samples),
    ``task_accuracy_honest`` (the victim's) and, with ``detector``, ``splitguard_score`` (near 1
    for an honest server). The prefix is ``attack/fsha_convolution/`` for the published pilot and
    ``attack/fsha_control/`` for the control.

    Args:
        max_samples: Largest number of private scenes to reconstruct, and of unseen samples to
            answer; None for all.
        auxiliary_samples: Largest number of public scenes to train on; None for all.
        pilot: Start of the server's own client: ``base`` is the public base model under the
            victim's policy, the stronger attacker; ``convolution`` starts from random weights, as
            published.
        control: Return the honest gradient, and train the attacker all the same. What it
            reconstructs then does not come from the hijacking.
        knows_positions: Whether the attacker knows which patches were kept.
        steps: Steps of the hijacked training at each epoch end.
        batch_size: Samples per step, both private and public.
        client_rate: Constant learning rate of the client; null takes the peak of the victim's
            recipe. A short fine-tune reaches that peak only briefly; held for thousands of steps,
            it ruins the client's features, hijacked or not.
        learning_rate: Learning rate of pilot and decoder.
        critic_rate: Learning rate of the critic.
        penalty: Weight of the critic's gradient penalty.
        noise: Standard deviation of the noise added to codes when the decoder trains.
        sensitive_weight: Weight added to the training error inside sensitive boxes; errors weigh
            1 elsewhere.
        detector: Let the client run SplitGuard: a tenth of its batches have random labels.
        patch_size: Side of a reconstructed patch in pixels.
        max_seconds: Time budget in seconds; the hijacked training stops when it is over.
        log_private: Write reconstructions into the run folder.

    Raises:
        ConfigError: If a number is out of range.
    """

    name: ClassVar[str] = "fsha"
    reads_channel: ClassVar[bool] = True
    # training continues across epochs, so this setting is part of the attack's budget
    every_n_epochs: int = 1
    auxiliary_samples: int | None = 2000
    pilot: PilotKind = "base"
    control: bool = False
    knows_positions: bool = True
    steps: int = 500
    batch_size: int = 16
    client_rate: float | None = 3e-4
    learning_rate: float = 3e-4
    critic_rate: float = 1e-3
    penalty: float = 10.0
    noise: float = 0.0
    sensitive_weight: float = 4.0
    detector: bool = False
    patch_size: int = 8
    max_seconds: float = 1800.0

    def __post_init__(self) -> None:
        """Check the settings before anything is attacked."""
        super().__post_init__()
        self.at_least(auxiliary_samples=1, steps=1, batch_size=2)
        if self.client_rate is not None and self.client_rate <= 0:
            raise ConfigError(f"client_rate is {self.client_rate}", remedy="choose more than 0")
        self._training = HijackTraining(
            learning_rate=self.learning_rate,
            critic_rate=self.critic_rate,
            penalty=self.penalty,
            noise=self.noise,
            sensitive_weight=self.sensitive_weight,
        )

    @property
    def metric_prefix(self) -> str:
        """Return the metric prefix of this pilot, or of the control."""
        if self.control:
            return "fsha_control"
        return "fsha" if self.pilot == "base" else "fsha_convolution"

    def check(self, victim: Victim, data: AttackData) -> None:
        """Raise a `ConfigError` for a cut beyond the model, or with no trained layer before it."""
        victim.channel.check(victim.model)
        if victim.channel.layers[0] == 0:
            raise ConfigError(
                "a client with no decoder layer trains nothing that could be hijacked",
                where="cuts",
                remedy="cut before layer 1 or later",
            )

    @property
    def _knowledge(self) -> str:
        return "known" if self.knows_positions else "unknown"

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return the one attack: gradients that leave a server cross the first cut."""
        return [[f"cut={visit.victim.channel.layers[0]}"]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Go on with the hijacked training, and score what it lets the attacker see."""
        cut = int(item.removeprefix("cut="))
        model = visit.victim.model
        split = AttackSplit.of(
            visit.data, auxiliary=self.auxiliary_samples, targets=self.max_samples, one_each=True
        )
        tasks = list(visit.data.nonmembers())[: self.max_samples]
        if not tasks:
            raise ConfigError("no unseen samples to answer", remedy="check the data module")
        auxiliary = scenes(model, split.auxiliary, self.patch_size)
        truth = scenes(model, split.targets, self.patch_size)
        honest = self._right(visit, tasks)
        with public_client(model):
            sent = visit.observe(split.auxiliary, cut, draw=1)
        with self._twin(visit, cut, self._public(sent, auxiliary)) as client:
            attack, guard = client.server.attack, client.guard
            rate = float(client.optimizer.defaults["lr"])
            members = list(visit.data.members())
            client.train(members, self.steps, deadline=visit.deadline, watch=visit.watch)
            save_state(client.state_dict(), visit.path(f"hijack-cut={cut}.pt"))
            hijacked = self._right(visit, tasks)
            seen = visit.observe(split.targets, cut)
        restored = attack.invert(seen)
        regions = truth.regions(seen.kept, seen.grid)
        report = reconstruction_report(restored, truth, regions, Baselines.of(auxiliary))
        report += residual_report(restored, truth, seen.kept, seen.grid, auxiliary)
        report += Recognition(
            visit,
            cut,
            attack,
            partial(public_client, model),
            split.auxiliary,
            sent,
            auxiliary,
            self.patch_size,
            self.knows_positions,
        ).report(seen, truth, restored)
        report += [
            _share("task_accuracy", hijacked, tasks),
            _share("task_accuracy_honest", honest, tasks),
        ]
        if guard is not None:
            report.append(_score(guard))
        if self.log_private:
            self._save_pictures(visit, cut, truth.pictures, restored)
        return [self._named(result, attack, cut, split.origin, rate) for result in report]

    def _public(self, sent: Observation, truth: Scenes) -> PublicScenes:
        """Return the attacker's scenes in the form its pilot takes."""
        if self.pilot == "convolution":
            return PublicScenes(truth.pictures, truth.sensitive)
        tokens = sent.tokens(knows_positions=self.knows_positions)
        return PublicScenes(truth.pictures, truth.sensitive, tokens)

    @contextmanager
    def _twin(self, visit: Visit, cut: int, public: PublicScenes) -> Iterator[HijackedClient]:
        """Yield the hijacked client of the latest earlier epoch, or a fresh one."""
        # the probe's seed, not the epoch's: training continues with the same attacker
        attack = Fsha(
            pilot=self.pilot,
            knows_positions=self.knows_positions,
            training=self._training,
            patch_size=self.patch_size,
            seed=self.seed,
        )
        patches = visit.victim.model.num_patches
        server = HijackingServer(attack, public, patches, cut, self.seed, control=self.control)
        guard = SplitGuard(seed=self.seed) if self.detector else None
        with hijacked_client(
            visit.victim,
            server,
            learning_rate=self.client_rate,
            batch_size=self.batch_size,
            guard=guard,
            seed=self.seed,
        ) as client:
            carried = visit.earlier(f"hijack-cut={cut}.pt")
            if carried is not None:
                client.load_state_dict(torch.load(carried, weights_only=True))
            yield client

    def _right(self, visit: Visit, tasks: Sequence[VQASample]) -> NDArray[np.float64]:
        """Return whether the model with its active adapter prefers the gold answer, ``[n]``."""
        victim = visit.victim
        access = QueryAccess.of(victim, seed=visit.seed)
        return access.score(tasks).correct

    def _named(self, result: Result, attack: Fsha, cut: int, origin: str, rate: float) -> Result:
        return replace(
            result,
            name=f"attack/{self.metric_prefix}/{result.name}",
            dataset=origin,
            attack={
                **attack.threat_model.settings(),
                "active": not self.control,
                "pilot": self.pilot,
                "client_rate": rate,
                "client_batch_size": self.batch_size,
                "cut": cut,
                "steps": attack.steps_done,
                "short": attack.short,
                **result.attack,
            },
            note=result.note or ("short attacker" if attack.short else ""),
        )

    def _save_pictures(self, visit: Visit, cut: int, truth: Tensor, restored: Tensor) -> None:
        shown = [truth[:PICTURES], restored[:PICTURES]]
        self.keep_picture(
            visit,
            f"cut={cut}",
            picture_grid(shown),
            kind="reconstruction",
            caption="Above the private pictures, below what FSHA makes of its hijacked client at "
            f"cut {cut}, policy {visit.victim.policy.label}, positions {self._knowledge}.",
            alt=f"{len(shown[0])} pairs of scenes and their reconstructions",
        )


def _share(name: str, right: NDArray[np.float64], samples: Sequence[VQASample]) -> Result:
    groups = [sample.group_id for sample in samples]
    return mean_result(name, right, {IMAGE_GROUP: groups}, bounds=RATE)


def _score(guard: SplitGuard) -> Result:
    if guard.score is None:
        note = f"{guard.num_fakes} fake batches so far"
        return Result(name="splitguard_score", value=None, n=0, status="not applicable", note=note)
    return Result(name="splitguard_score", value=guard.score, n=guard.num_fakes)
