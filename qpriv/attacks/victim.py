"""`Victim` and `AttackData`: the protocols of attacked modules and of the attackers' data.

Probes access a LightningModule and a DataModule only through these two protocols, so any module
with the attributes below can be attacked.
"""

from collections.abc import Sequence
from typing import Protocol, cast, runtime_checkable

from qpriv.datasets.sample import VQASample
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.centralized import Encode
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.pruning.policy import PruningPolicy
from qpriv.result import Circumstances
from qpriv.split import Channel

from .members import missing


@runtime_checkable
class Victim(Protocol):
    """A model in training, with its training settings."""

    @property
    def model(self) -> VisionLanguageModel:
        """The model, with its LoRA adapter if it is fine-tuned."""
        ...

    @property
    def encode(self) -> Encode:
        """The frozen encoders: the model's own `encode`, or a cache around it."""
        ...

    @property
    def policy(self) -> PruningPolicy:
        """The pruning policy the client runs before the cut."""
        ...

    @property
    def channel(self) -> Channel:
        """The channel between the parties; `Channel.supposed` if there is only one party."""
        ...

    @property
    def recipe(self) -> LoraRecipe:
        """The training recipe that a shadow model must share with the victim."""
        ...

    @property
    def seed(self) -> int:
        """Seed of the run."""
        ...


@runtime_checkable
class AttackData(Protocol):
    """The data sets of one study, kept apart by image (``group_id``) and by identity.

    The lists below share no group. `targets` and `gallery` may share identities with `members`
    and `nonmembers`, because these are the people to recognise. Identities of `auxiliary` and
    `population` occur in no other list.
    """

    def members(self) -> Sequence[VQASample]:
        """The victim's whole training set."""
        ...

    def nonmembers(self) -> Sequence[VQASample]:
        """Samples drawn like the members, with the same mix of question types, never trained on."""
        ...

    def population(self) -> Sequence[VQASample]:
        """The attacker's own samples of the victim's task, on which shadow models train.

        There must be at least twice as many groups of every question type as in `members`.
        """
        ...

    def auxiliary(self) -> Sequence[VQASample]:
        """Public in-domain scenes on which the attacker trains its inverters."""
        ...

    def targets(self) -> Sequence[VQASample]:
        """Private scenes on which attacks are scored; their boxes are ground truth."""
        ...

    def gallery(self) -> Sequence[VQASample]:
        """One picture of each person the attacker tries to recognise, or nothing.

        Each has one sensitive box (the face) and ``meta["identity"]``; the people of `targets`
        are among them, those of `auxiliary` are not.
        """
        ...


def own_questions(data: AttackData, samples: Sequence[VQASample]) -> list[list[VQASample]]:
    """Return all of a data set's questions about the targets' images, grouped by image.

    `AttackData.targets` may hold one question per image. A data module that knows the others
    provides all of them by ``target_questions()``.

    Args:
        data: The data module.
        samples: Targets, one per image.
    """
    listed = getattr(data, "target_questions", data.targets)()
    asked: dict[str, list[VQASample]] = {}
    for sample in listed:
        asked.setdefault(sample.image_key, []).append(sample)
    return [asked.get(sample.image_key, [sample]) for sample in samples]


def describe(module: object) -> Circumstances:
    """Return the circumstances of a module's results; `qpriv.result.stamp` attaches them.

    The channel is the one of the training. If there is none, results that depend on a hypothetical
    channel name it themselves. A module that is not a `Victim`, such as one with a document model,
    has neither pruning nor cuts.
    """
    if missing(module, Victim):
        seed = int(getattr(module, "seed", 0))
        return Circumstances(
            seed=seed, policy="off", paradigm="centralized", channel="", defence="none"
        )
    victim = cast(Victim, module)
    channel = victim.channel
    return Circumstances(
        seed=int(victim.seed),
        policy=victim.policy.label,
        paradigm=channel.paradigm,
        channel="" if channel.hypothetical else channel.label,
        defence=channel.defence_label,
    )
