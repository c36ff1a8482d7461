"""What a module, its data and the trainer must offer before anything is attacked."""

import lightning as L
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy

from qpriv.attacks.victim import AttackData, Victim
from qpriv.errors import ConfigError


def require_victim(module: L.LightningModule) -> Victim:
    """Return a module as what an attack may know of it.

    Raises:
        ConfigError: If it lacks what an attack needs; names what.
    """
    if isinstance(module, Victim):
        return module
    missing = [
        key
        for key in ("model", "encode", "policy", "channel", "recipe", "seed")
        if not hasattr(module, key)
    ]
    raise ConfigError(
        f"{type(module).__name__} cannot be attacked: it has no {', '.join(missing)}",
        remedy="fine-tune with VQAModule, or give your module these attributes",
    )


def require_data(datamodule: object) -> AttackData:
    """Return a data module as the attackers' data.

    Raises:
        ConfigError: If it lacks lists that attacks draw from; names them.
    """
    if isinstance(datamodule, AttackData):
        return datamodule
    lists = ("members", "nonmembers", "population", "auxiliary", "targets", "gallery")
    missing = [key for key in lists if not hasattr(datamodule, key)]
    raise ConfigError(
        f"{type(datamodule).__name__} offers attackers no {', '.join(missing)}",
        remedy="use a data module with these lists, or leave the attack callbacks out",
    )


def require_whole(trainer: L.Trainer) -> None:
    """Refuse to attack where no process holds a whole model.

    Raises:
        ConfigError: If the strategy shards the weights.
    """
    if isinstance(trainer.strategy, FSDPStrategy | ModelParallelStrategy | DeepSpeedStrategy):
        raise ConfigError(
            f"{type(trainer.strategy).__name__} gives no process a whole model to attack",
            where="--trainer.strategy",
            remedy="train without probes, then attack the checkpoint, or use ddp",
        )
