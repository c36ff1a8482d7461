"""`FshaProbe`: beside the training, a twin of it whose server hijacks the client."""

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
from qpriv.metrics.intervals import rate_interval
from qpriv.result import Result

PICTURES = 8


@dataclass(eq=False, repr=False, kw_only=True)
class FshaProbe(Probe):
    """Hijacks a twin of the client and reconstructs private scenes from what it sends.

    An active server would ruin the training it is meant to measure, so the attack has a client
    of its own: a fresh adapter, trained by the victim's recipe, but for the learning rate, on the
    victim's data, with FSHA in the server's place. Twin and attacker are carried over from epoch
    to epoch of a fit; a ``qpriv attack`` begins anew.

    Figures are ``attack/fsha/<name>`` with the names of `reconstruction_report`,
    `residual_report`, `recognition_report` and `floors_by_knowledge`, and what the client would
    notice:
    ``task_accuracy``, how often the twin's answers to unseen samples are right, beside
    ``task_accuracy_honest``, the victim's; with ``detector``, ``splitguard_score`` (near 1 for an
    honest server). Those of the published pilot are ``attack/fsha_convolution/<name>``, those of
    the control ``attack/fsha_control/<name>``.

    Args:
        max_samples: Private scenes to reconstruct, and samples to answer.
        auxiliary_samples: Public scenes the attacker trains on.
        pilot: Where the server's own client starts: ``base`` as the public base model under the
            victim's policy, the stronger attacker; ``convolution``, as published, from nothing.
        control: Return the honest gradient and learn all the same: what the attacker reads then
            is not the hijacking's doing.
        knows_positions: Whether it knows which patches were kept.
        steps: Steps of the hijacked training at each epoch end.
        batch_size: Samples a step, of the client's and of public ones.
        client_rate: Constant learning rate of the client; null is the peak of the victim's
            recipe. A peak that a short fine-tune stands for a moment ruins the features of a
            client that trains for thousands of steps, hijacked or not.
        learning_rate: Of pilot and decoder.
        critic_rate: Of the critic.
        penalty: Weight of the gradient penalty.
        noise: Spread of the noise on codes when the decoder trains.
        sensitive_weight: How much more an error counts in a sensitive box in training.
        detector: Let the client run SplitGuard: a tenth of its batches have random labels.
        patch_size: Side of a reconstructed patch in pixels.
        max_seconds: The hijacked training stops when this time is over.
        log_private: Write reconstructions into the run folder.

    Raises:
        ConfigError: If a number is out of its range.
    """

    name: ClassVar[str] = "fsha"
    reads_channel: ClassVar[bool] = True
    # twin and attacker are carried over: how often and how long they train is the budget
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
        """Return the name that tells the stronger attacker's figures from the others'."""
        if self.control:
            return "fsha_control"
        return "fsha" if self.pilot == "base" else "fsha_convolution"

    def check(self, victim: Victim, data: AttackData) -> None:
        """Refuse cuts beyond the model's depth, and one before which nothing trains."""
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
        """Return the attacker's scenes, as its pilot takes them in."""
        if self.pilot == "convolution":
            return PublicScenes(truth.pictures, truth.sensitive)
        tokens = sent.tokens(knows_positions=self.knows_positions)
        return PublicScenes(truth.pictures, truth.sensitive, tokens)

    @contextmanager
    def _twin(self, visit: Visit, cut: int, public: PublicScenes) -> Iterator[HijackedClient]:
        """Yield the hijacked client as the latest earlier epoch left it, or a fresh one."""
        # its own seed, not the epoch's: an attacker that is carried over stays who it is
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
        """Return whether the model, with the adapter that is active, prefers the gold answers."""
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
    interval = rate_interval(right, groups)
    return Result(name=name, value=float(right.mean()), n=len(set(groups)), ci=interval)


def _score(guard: SplitGuard) -> Result:
    if guard.score is None:
        note = f"{guard.num_fakes} fake batches so far"
        return Result(name="splitguard_score", value=None, n=0, status="not applicable", note=note)
    return Result(name="splitguard_score", value=guard.score, n=guard.num_fakes)
