"""`FaceScenes`: the embedded data set, with everything an attack study needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qpriv.datasets import face_scenes
from qpriv.datasets.base import VQADataset
from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError

from .base import Split, VQADataModule


@dataclass(eq=False, repr=False, kw_only=True)
class FaceScenes(VQADataModule):
    """Drawn scenes with real faces: a victim trains on members, an attacker has people of its own.

    Training shows the members' faces, validation and test the non-members', and the attacker's
    scenes (`auxiliary`, `population`) the auxiliary people's, who are in no other list. Beside
    the questions about shapes, a study of membership needs answers that only memory can give:
    ``num_memorised`` adds images with one such question each.

    Args:
        num_train: Training images with questions about shapes.
        num_memorised: Training images whose one answer is random and must be memorised.
        num_eval: Images of validation and of test each.
        questions_per_image: Random questions kept of each image's five to seven; None keeps all.
        num_auxiliary: Scenes an attacker trains its inverters on.
        num_targets: Scenes of members on which reconstructions are scored.
        population_factor: Times as many images as the victim's for shadow models to train on.
        nonmember_factor: Times as many images as the victim's that were not trained on. Membership
            at 1 % false positives needs a thousand non-members, but not as many members.
        world: Chooses other scenes; ``seed`` chooses their order alone.
    """

    num_train: int = 1000
    num_memorised: int = 0
    num_eval: int = 250
    questions_per_image: int | None = 2
    num_auxiliary: int = 2000
    num_targets: int = 250
    population_factor: int = 2
    nonmember_factor: int = 1
    world: int = 0

    source = face_scenes.FaceScenes

    def __post_init__(self) -> None:
        """Check the numbers before anything is drawn."""
        super().__post_init__()
        self._lists: dict[str, list[VQASample]] = {}
        for name in ("num_train", "num_memorised", "num_eval", "num_auxiliary", "num_targets"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="choose 0 or more")
        if self.population_factor < 2:
            raise ConfigError(
                f"population_factor is {self.population_factor}",
                remedy="choose 2 or more: a shadow model needs members and as many non-members",
            )
        if self.nonmember_factor < 1:
            raise ConfigError(
                f"nonmember_factor is {self.nonmember_factor}", remedy="choose 1 or more"
            )

    def dataset(self, split: Split) -> VQADataset:
        """Return the members' mixture to train on, or the scenes of validation or test."""
        if split == "train":
            return VQADataset("members", _samples(self._mixture("members", 1)))
        return self._scenes(split, self.num_eval)

    def nonmembers(self) -> Sequence[VQASample]:
        """Return samples of the members' mixture, as many or more, never trained on."""
        return self._drawn("nonmembers", lambda: self._mixture("nonmembers", self.nonmember_factor))

    def population(self) -> Sequence[VQASample]:
        """Return the attacker's samples of the victim's mixture, to train shadow models on."""
        return self._drawn("population", lambda: self._mixture("train", self.population_factor))

    def auxiliary(self) -> Sequence[VQASample]:
        """Return the attacker's scenes, one question each, to train inverters on."""
        return self._drawn("auxiliary", lambda: [self._attacked("train", self.num_auxiliary)])

    def targets(self) -> Sequence[VQASample]:
        """Return private scenes, one question each, on which reconstruction is scored."""
        return self._drawn("targets", lambda: [self._attacked("members", self.num_targets)])

    def target_questions(self) -> Sequence[VQASample]:
        """Return all questions about the images of `targets`."""
        return self._drawn(
            "target_questions", lambda: [self._attacked("members", self.num_targets, None)]
        )

    def gallery(self) -> Sequence[VQASample]:
        """Return one picture of each of the sixty people no attacker has seen."""
        return face_scenes.face_gallery()

    def _drawn(
        self, name: str, draw: Callable[[], list[face_scenes.FaceScenes]]
    ) -> list[VQASample]:
        """Return a list that attackers ask for again and again; it is drawn once."""
        if name not in self._lists:
            self._lists[name] = _samples(draw())
        return self._lists[name]

    def _attacked(
        self, split: str, number: int, questions: int | None = 1
    ) -> face_scenes.FaceScenes:
        # another world than the population's, so that the two share no image
        return face_scenes.FaceScenes(split, number, self.world + 1, "scenes", questions)

    def _mixture(self, split: str, factor: int) -> list[face_scenes.FaceScenes]:
        memorised = face_scenes.FaceScenes(
            split, factor * self.num_memorised, self.world, "memorisation"
        )
        return [self._scenes(split, factor * self.num_train), memorised]

    def _scenes(self, split: str, number: int) -> face_scenes.FaceScenes:
        return face_scenes.FaceScenes(split, number, self.world, "scenes", self.questions_per_image)


def _samples(parts: Sequence[face_scenes.FaceScenes]) -> list[VQASample]:
    return [sample for part in parts for sample in part.samples]
