"""``qpriv attack``: the configured probes, once, on a checkpoint."""

from pathlib import Path
from typing import cast

import lightning as L

from callbacks import Probe
from callbacks.endings import passes_of
from callbacks.runtime.checkpoint_io import AtomicCheckpointIO
from qpriv.attacks.victim import AttackData
from qpriv.errors import ConfigError


class AttackTrainer(L.Trainer):
    """A trainer that can also attack."""

    def attack(
        self,
        model: L.LightningModule,
        datamodule: L.LightningDataModule | None = None,
        ckpt_path: str | None = None,
        weights_only: bool | None = None,
    ) -> None:
        """Validate a checkpoint, then run every configured probe once on it.

        Args:
            model: The victim.
            datamodule: Its data, and the attackers'.
            ckpt_path: The checkpoint; the model as it is loaded where null.
            weights_only: Read a checkpoint without running code, as is always done here; a fit's
                own configuration says it.

        Raises:
            ConfigError: If no probe is configured.
        """
        # the trainer sets `callbacks` through a connector, which its annotations do not show
        listed: list[L.Callback] = getattr(self, "callbacks")
        probes = [callback for callback in listed if isinstance(callback, Probe)]
        if not probes:
            raise ConfigError(
                "there is no probe to run",
                where="trainer.callbacks",
                remedy="add ForaProbe, MembershipProbe or another one",
            )
        self.validate(
            model,
            datamodule=datamodule,
            ckpt_path=ckpt_path,
            verbose=False,
            weights_only=weights_only,
        )
        epoch, trained = -1, None  # before training
        if ckpt_path is not None:
            checkpoint = AtomicCheckpointIO().load_checkpoint(ckpt_path, "cpu")
            epoch, trained = int(checkpoint["epoch"]), passes_of(checkpoint)
        for probe in probes:
            # the probe itself checks what the data module offers
            data, folder = cast(AttackData, datamodule), Path(self.default_root_dir)
            probe.run_once(model, data, folder, epoch, trained)
