"""Checks of the module, its data and the trainer before an attack."""

from typing import cast

import lightning as L
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy

from qpriv.attacks.extraction.contexts import DocumentVictim, ExtractionData
from qpriv.attacks.members import faults, missing
from qpriv.attacks.victim import AttackData, Victim
from qpriv.errors import ConfigError


def require_victim(module: L.LightningModule) -> Victim:
    """Return a module as a `Victim`.

    Raises:
        ConfigError: If a member of `Victim` is missing or has another form; the message names it.
    """
    remedy = "fine-tune with VQAModule, or give your module what `Victim` lists"
    _require(module, Victim, "cannot be attacked", remedy)
    return cast(Victim, module)


def require_data(datamodule: object) -> AttackData:
    """Return a data module as `AttackData`.

    Raises:
        ConfigError: If a member of `AttackData` is missing or has another form.
    """
    remedy = "use a data module with what `AttackData` lists, or leave the attack callbacks out"
    _require(datamodule, AttackData, "offers attackers too little", remedy)
    return cast(AttackData, datamodule)


def require_document_victim(module: L.LightningModule) -> DocumentVictim:
    """Return a module as a `DocumentVictim`.

    Raises:
        ConfigError: If the module trains no document model.
    """
    remedy = "use DocumentVQAModule, or leave ExtractionProbe out"
    _require(module, DocumentVictim, "trains no document model", remedy)
    return cast(DocumentVictim, module)


def require_canaries(datamodule: object) -> ExtractionData:
    """Return a data module as `ExtractionData`.

    Raises:
        ConfigError: If the data module has no canaries.
    """
    remedy = "use FakeDocuments or DocVQACanaries, or leave ExtractionProbe out"
    _require(datamodule, ExtractionData, "has no canaries", remedy)
    return cast(ExtractionData, datamodule)


def _require(given: object, protocol: type, says: str, remedy: str) -> None:
    lacks, wrong = missing(given, protocol), faults(given, protocol)
    told = [f"it has no {', '.join(lacks)}"] if lacks else []
    if told or wrong:
        raise ConfigError(
            f"{type(given).__name__} {says}: {'; '.join((*told, *wrong))}",
            remedy=remedy,
        )


def require_whole(trainer: L.Trainer, module: L.LightningModule) -> None:
    """Check that every process holds a whole model.

    Raises:
        ConfigError: If the module or the strategy shards the weights over processes.
    """
    if getattr(module, "is_sharded", False):
        raise ConfigError(
            "a decoder divided among processes gives none a whole model to attack",
            where="--model.shard",
            remedy="train without probes, then attack the checkpoint by one process",
        )
    if isinstance(trainer.strategy, FSDPStrategy | ModelParallelStrategy | DeepSpeedStrategy):
        raise ConfigError(
            f"{type(trainer.strategy).__name__} gives no process a whole model to attack",
            where="--trainer.strategy",
            remedy="train without probes, then attack the checkpoint, or use ddp",
        )
