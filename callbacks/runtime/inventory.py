"""`Inventory`: log the trained and frozen parameters before a fit starts."""

import logging

import lightning as L

from qpriv.models.inventory import inventory

logger = logging.getLogger(__name__)


class Inventory(L.Callback):
    """Logs the trained and frozen parameters of every part of the module."""

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the table, once weights are loaded and adapters added."""
        if trainer.is_global_zero:
            logger.info("%s", inventory(pl_module))
