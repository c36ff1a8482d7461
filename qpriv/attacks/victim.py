"""What an attack may assume: the `Victim` that is attacked, and the `AttackData` it needs.

Probes reach a LightningModule and a DataModule through these two protocols only, so that any
module with the few attributes below can be attacked.
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
    """A model in training, with all that says how it is trained."""

    @property
    def model(self) -> VisionLanguageModel:
        """The model, with its LoRA adapter where it is fine-tuned."""
        ...

    @property
    def encode(self) -> Encode:
        """The frozen encoders: the model's own `encode`, or a cache in front of it."""
        ...

    @property
    def policy(self) -> PruningPolicy:
        """The pruning policy the client runs before the cut."""
        ...

    @property
    def channel(self) -> Channel:
        """What crosses between the parties; `Channel.supposed` where one owns all of it."""
        ...

    @property
    def recipe(self) -> LoraRecipe:
        """Everything that a shadow model must share with the victim's fine-tune."""
        ...

    @property
    def seed(self) -> int:
        """Seed of the run."""
        ...


@runtime_checkable
class AttackData(Protocol):
    """The data sets of one study, kept apart by image (``group_id``) and by identity.

    No group of one list below occurs in another one, except that `targets` and `gallery` may
    share identities with `members` and `nonmembers` (they are the people to be recognised).
    An identity of `auxiliary` or `population` occurs in none of the other lists.
    """

    def members(self) -> Sequence[VQASample]:
        """The victim's whole training set."""
        ...

    def nonmembers(self) -> Sequence[VQASample]:
        """Samples drawn like the members, with the same mix of question types, never trained on."""
        ...

    def population(self) -> Sequence[VQASample]:
        """The attacker's own samples of the victim's task, from which shadow models are trained.

        It holds at least twice as many groups of every question type as `members`.
        """
        ...

    def auxiliary(self) -> Sequence[VQASample]:
        """Public in-domain scenes on which the attacker trains its inverters."""
        ...

    def targets(self) -> Sequence[VQASample]:
        """Private scenes on which reconstruction is scored; their boxes are the truth of it."""
        ...

    def gallery(self) -> Sequence[VQASample]:
        """One picture of each person the attacker tries to recognise, or nothing.

        Each has one sensitive box (the face) and ``meta["identity"]``; the people of `targets`
        are among them, those of `auxiliary` are not.
        """
        ...


def own_questions(data: AttackData, samples: Sequence[VQASample]) -> list[list[VQASample]]:
    """Return all that a data set asks about the images of some targets, those of each together.

    `AttackData.targets` may hold one question an image; a data module that knows the others
    lists them all as ``target_questions()``.

    Args:
        data: The data module.
        samples: Targets, one an image.
    """
    listed = getattr(data, "target_questions", data.targets)()
    asked: dict[str, list[VQASample]] = {}
    for sample in listed:
        asked.setdefault(sample.image_key, []).append(sample)
    return [asked.get(sample.image_key, [sample]) for sample in samples]


def describe(module: object) -> Circumstances:
    """Return under what a module's results are measured; `qpriv.result.stamp` attaches it.

    The channel is the one the run was trained with. Where it has none, results that depend on a
    hypothetical one name it themselves. A module that is no `Victim`, such as one that trains a
    document model, prunes and cuts nothing.
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
