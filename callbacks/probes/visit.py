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
        run_folder: Folder for the run's results and pictures.
        folder: Folder for the state that this probe needs again in later epochs.
        seed: Seed of the current item; random numbers are already seeded with it.
        deadline: `time.monotonic` at which the probe's time budget is over.
        trained: The victim's passes through its training set; None is one per epoch.
        goes_on: Whether the training is expected to continue afterwards.
        watch: Called with the number of finished steps of the current item and the total.
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
        """Return the victim's passes through its training set; may be fractional."""
        return float(self.epoch + 1) if self.trained is None else self.trained

    @property
    def victim(self) -> Victim:
        """Return the module as a `Victim`, which is all that an attack may know of it."""
        return cast(Victim, self.module)  # `Probe.require` has checked this

    def observe(self, samples: Sequence[VQASample], cut: int, *, draw: int = 0) -> Observation:
        """Return what the receiver at a cut sees when the victim's model processes samples.

        Args:
            samples: The samples; the model uses its current weights and its active adapter.
            cut: The decoder layer before which activations cross.
            draw: Number of the defence's random draw. Activations that the attacker produces
                itself need another draw than those it observes.
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
        """Return the path of a file of this epoch."""
        return self.folder / f"epoch={self.epoch}" / name

    def earlier(self, name: str) -> Path | None:
        """Return the path of a file from the latest earlier epoch that has it, or None."""
        epochs = range(self.epoch - 1, -2, -1)
        found = (self.folder / f"epoch={epoch}" / name for epoch in epochs)
        return next((path for path in found if path.exists()), None)
