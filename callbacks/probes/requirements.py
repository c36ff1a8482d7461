"""What a module, its data and the trainer must offer before anything is attacked."""

from typing import cast

import lightning as L
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy

from qpriv.attacks.extraction.contexts import DocumentVictim, ExtractionData
from qpriv.attacks.members import faults, missing
from qpriv.attacks.victim import AttackData, Victim
from qpriv.errors import ConfigError


def require_victim(module: L.LightningModule) -> Victim:
    """Return a module as what an attack may know of it.

    Raises:
        ConfigError: If it lacks what an attack needs, or has it in another form; names what.
    """
    remedy = "fine-tune with VQAModule, or give your module what `Victim` lists"
    _require(module, Victim, "cannot be attacked", remedy)
    return cast(Victim, module)


def require_data(datamodule: object) -> AttackData:
    """Return a data module as the attackers' data.

    Raises:
        ConfigError: If it lacks lists that attacks draw from, or gives them in another form.
    """
    remedy = "use a data module with what `AttackData` lists, or leave the attack callbacks out"
    _require(datamodule, AttackData, "offers attackers too little", remedy)
    return cast(AttackData, datamodule)


def require_document_victim(module: L.LightningModule) -> DocumentVictim:
    """Return a module as one that trains a document model.

    Raises:
        ConfigError: If it trains none.
    """
    remedy = "use DocumentVQAModule, or leave ExtractionProbe out"
    _require(module, DocumentVictim, "trains no document model", remedy)
    return cast(DocumentVictim, module)


def require_canaries(datamodule: object) -> ExtractionData:
    """Return a data module as one whose training set holds canaries.

    Raises:
        ConfigError: If it has none.
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
    """Refuse to attack where no process holds a whole model.

    Raises:
        ConfigError: If the module or the strategy divides the weights among processes.
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
