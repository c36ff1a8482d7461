"""`Inventory`: tells at the start of a fit what is trained, before any of it is."""

import logging

import lightning as L

from qpriv.models.inventory import inventory

logger = logging.getLogger(__name__)


class Inventory(L.Callback):
    """Logs the trained and frozen parameters of every part of the module."""

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the table; weights are loaded and adapters added by now."""
        if trainer.is_global_zero:
            logger.info("%s", inventory(pl_module))
