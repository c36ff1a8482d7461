"""`Visit`: one run of one probe on one state of the victim."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import lightning as L

from callbacks.probes.progress import Watch, unwatched
from qpriv.attacks.observation import Observation, observe
from qpriv.attacks.victim import AttackData, Victim
from qpriv.datasets.sample import VQASample
from qpriv.split import RandomKey


@dataclass(frozen=True)
class Visit:
    """One run of one probe on one state of the victim.

    Args:
        module: The LightningModule; a `Victim`.
        data: The DataModule; an `AttackData`.
        epoch: Epoch that has just ended, from 0; -1 before training.
        run_folder: Where results and pictures of the run go.
        folder: Where this probe keeps what it needs again in later epochs.
        seed: Seed of the item at work; random numbers are already seeded with it.
        deadline: `time.monotonic` at which the probe's time is up.
        trained: How often the victim has gone through its training set; None is once an epoch.
        goes_on: Whether the training goes on afterwards, as far as is known.
        watch: Takes how many steps of the item at work are done, and how many there are.
    """

    module: L.LightningModule
    data: AttackData
    epoch: int
    run_folder: Path
    folder: Path
    seed: int = 0
    deadline: float = float("inf")
    trained: float | None = None
    goes_on: bool = False
    watch: Watch = unwatched

    @property
    def passes(self) -> float:
        """Return how often the victim has gone through its training set, whole or not."""
        return float(self.epoch + 1) if self.trained is None else self.trained

    @property
    def victim(self) -> Victim:
        """Return the module by what an attack may know of it."""
        return cast(Victim, self.module)  # `Probe.require` has seen to it

    def observe(self, samples: Sequence[VQASample], cut: int, *, draw: int = 0) -> Observation:
        """Return what the receiver at a cut of the victim reads of some samples.

        Args:
            samples: The samples; of the victim's model as it is, with the adapter that is active.
            cut: The cut.
            draw: Which random numbers a defence draws: other ones for what the attacker makes
                itself than for what it watches.
        """
        victim, key = self.victim, RandomKey(self.seed, draw)
        return observe(
            victim.model,
            victim.policy,
            samples,
            victim.channel,
            cut,
            encode=victim.encode,
            key=key,
        )

    def path(self, name: str) -> Path:
        """Return where a file of this epoch is kept."""
        return self.folder / f"epoch={self.epoch}" / name

    def earlier(self, name: str) -> Path | None:
        """Return the file of that name from the latest earlier epoch, or None."""
        epochs = range(self.epoch - 1, -2, -1)
        found = (self.folder / f"epoch={epoch}" / name for epoch in epochs)
        return next((path for path in found if path.exists()), None)
