"""Whose face crossed: the one place where reconstruction probes recognise people."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from callbacks.probes.probe import Visit
from qpriv.attacks.observation import Observation, Scenes, scenes
from qpriv.attacks.reconstruction.recognition.places import Placer
from qpriv.attacks.reconstruction.recognition.portraits import Portraits, Tones, Warp, paste
from qpriv.attacks.reconstruction.recognition.reading import Crossed
from qpriv.attacks.reconstruction.recognition.recogniser import Recogniser, found_first
from qpriv.attacks.reconstruction.recognition.report import (
    floors_by_knowledge,
    recognition_report,
    whole_crop_report,
)
from qpriv.attacks.reconstruction.scoring import Baselines
from qpriv.attacks.token_grid import TokenGrid
from qpriv.datasets.sample import VQASample
from qpriv.result import Result

ROUNDS = 2
"""Scenes of each of the gallery's people that the attacker makes."""
TRIAL_PEOPLE = 60
"""At most so many auxiliary people judge which matcher is the strongest."""


class Reconstruction(Protocol):
    """A fitted attack, by what recognition needs of it."""

    def own(self, grid: TokenGrid, pictures: Tensor) -> TokenGrid:
        """Return tokens of the attacker's own scenes in the space it has learned."""
        ...

    def crossed(self, grid: TokenGrid) -> TokenGrid:
        """Return the victim's tokens in that space."""
        ...

    def paint(self, grid: TokenGrid) -> Tensor:
        """Return pictures of tokens in that space."""
        ...


class Client(Protocol):
    """Makes the context in which the model computes as the attacker's own client does."""

    def __call__(self) -> AbstractContextManager[None]:
        """Return it anew."""
        ...


@dataclass(frozen=True)
class Recognition:
    """What an attacker does to recognise people.

    Args:
        visit: The run of the probe.
        cut: The cut that is attacked.
        attack: The fitted attack.
        client: Through which client the attacker sends scenes of its own.
        known: Its scenes, one an image.
        sent: What crossed of them, through that client.
        truth: The truth about them.
        patch_size: Side of a patch in pixels.
        knows_positions: Whether it knows which of the victim's patches were kept.
    """

    visit: Visit
    cut: int
    attack: Reconstruction
    client: Client
    known: Sequence[VQASample]
    sent: Observation
    truth: Scenes
    patch_size: int
    knows_positions: bool

    def report(self, seen: Observation, private: Scenes, restored: Tensor) -> list[Result]:
        """Return figures of recognition, and floors; nothing without a gallery or any face.

        Args:
            seen: What crossed of the private scenes.
            private: Their truth.
            restored: What the attack makes of them.
        """
        people = Portraits.of(list(self.visit.data.gallery()))
        if not len(people) or not any(self.truth.faces):
            return []
        if _are_merged(seen) or _are_merged(self.sent):
            return whole_crop_report(people, private, restored)
        crossed = private.regions(seen.kept, seen.grid).kept
        auxiliary = self._learned(self.sent, self.truth)
        tokens = self.attack.crossed(self._placed(seen))
        own = Crossed(tokens, private)
        recogniser = self._fitted(people, auxiliary, seed=1)
        report = recognition_report(
            recogniser,
            own,
            restored,
            crossed,
            self._rates(auxiliary),
            self._fitted(Warp()(people, self.visit.seed), auxiliary, seed=2),
        )
        return report + floors_by_knowledge(recogniser, own, self.truth, Baselines.of(self.truth))

    def _placed(self, seen: Observation, known: slice = slice(None)) -> TokenGrid:
        """Return tokens where the attacker takes them to lie, as some of its own scenes teach."""
        if self.knows_positions:
            return seen.tokens(knows_positions=True)
        placer = Placer.fit(self.sent.tokens(knows_positions=True)[known])
        return placer.place(seen.transcript.image_rows(self.cut))

    def _learned(self, sent: Observation, truth: Scenes) -> Crossed:
        """Return what the attack learns of scenes of its own, whose places it knows."""
        grid = sent.tokens(knows_positions=True)
        return Crossed(self.attack.own(grid, truth.pictures), truth)

    def _fitted(self, people: Portraits, auxiliary: Crossed, seed: int) -> Recogniser:
        tones = Tones.between(people, auxiliary.scenes)
        pasted = self._learned(*self._pasted(self.known, people, tones, seed))
        return Recogniser.fit(people, auxiliary, pasted, self.patch_size)

    def _pasted(
        self, hosts: Sequence[VQASample], people: Portraits, tones: Tones, seed: int
    ) -> tuple[Observation, Scenes]:
        made = paste(hosts, people, tones, ROUNDS, self.visit.seed + seed)
        truth = scenes(self.visit.victim.model, made, self.patch_size)
        with self.client():
            return self.visit.observe(made, self.cut, draw=1), truth

    def _rates(self, auxiliary: Crossed) -> dict[str, float]:
        """Return how often each matcher, learned on half of the scenes, finds people in the rest."""
        half = len(self.known) // 2
        first, second = slice(None, half), slice(half, None)
        people = Portraits.within(self.truth[first], TRIAL_PEOPLE)
        if len(people) < 2 or not any(self.truth.faces[second]):
            return {}
        learned = Crossed(auxiliary.tokens[first], auxiliary.scenes[first])
        tones = Tones.between(people, learned.scenes)
        pasted = self._learned(*self._pasted(self.known[first], people, tones, 3))
        trial = Recogniser.fit(people, learned, pasted, self.patch_size)
        seen, shown = self._pasted(self.known[second], people, tones, 4)
        # no better placed than the victim's tokens are, to be compared and to be painted
        placed = self.attack.own(self._placed(seen, first), shown.pictures)
        told = seen.tokens(knows_positions=self.knows_positions)
        painted = self.attack.paint(self.attack.own(told, shown.pictures))
        return found_first(trial, Crossed(placed, shown), painted)


def _are_merged(seen: Observation) -> bool:
    """Return whether some token that crossed is made of several patches, and has no place."""
    rows = seen.transcript.image_rows(seen.cut)
    return any(len(row) != len(kept) for row, kept in zip(rows, seen.kept, strict=True))
