"""`Recognition`: how reconstruction probes recognise the people whose faces crossed."""

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
"""Number of scenes that the attacker composes of each person in the gallery."""
TRIAL_PEOPLE = 60
"""Largest number of auxiliary people in the trial that selects the strongest matcher."""


class Reconstruction(Protocol):
    """The methods of a fitted attack that recognition needs."""

    def own(self, grid: TokenGrid, pictures: Tensor) -> TokenGrid:
        """Map tokens of the attacker's own scenes to the space that the attack has learned."""
        ...

    def crossed(self, grid: TokenGrid) -> TokenGrid:
        """Map the victim's tokens to that space."""
        ...

    def paint(self, grid: TokenGrid) -> Tensor:
        """Decode tokens of that space to pictures."""
        ...


class Client(Protocol):
    """Creates a context in which the model computes like the attacker's own client."""

    def __call__(self) -> AbstractContextManager[None]:
        """Return a new context."""
        ...


@dataclass(frozen=True)
class Recognition:
    """An attacker's recognition of people in reconstructed scenes.

    Args:
        visit: The run of the probe.
        cut: The attacked cut.
        attack: The fitted attack.
        client: The client through which the attacker sends its own scenes.
        known: The attacker's scenes, one sample per image.
        sent: The activations of these scenes, as they crossed through that client.
        truth: The ground truth of these scenes.
        patch_size: Side of a patch in pixels.
        knows_positions: Whether the attacker knows which of the victim's patches were kept.
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
        """Return recognition results and baselines; empty without a gallery or without faces.

        Args:
            seen: The private scenes' activations, as they crossed.
            private: The private scenes' ground truth.
            restored: The attack's reconstructions, ``[n, 3, H, W]`` in [0, 1].
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
        """Return the attack's tokens of its own scenes, whose positions it knows."""
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
        """Fit each matcher on half of the scenes and return its hit rate on the other half."""
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
    """Return whether a token that crossed merges several patches and so has no position."""
    rows = seen.transcript.image_rows(seen.cut)
    return any(len(row) != len(kept) for row, kept in zip(rows, seen.kept, strict=True))
