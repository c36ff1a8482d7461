"""`PredictorModule`: what teachers and student share; each trains a part of one predictor."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from scipy import stats
from torch.optim import AdamW

from qpriv.errors import ConfigError
from qpriv.models.encoder_record import read_encoders
from qpriv.models.registry import Backbone
from qpriv.paradigms.recipe import Schedule
from qpriv.pruning.predictor import DynamicThresholdPredictor
from qpriv.result import Result, append_results

from .base import TrainedOnly


class PredictorModule(TrainedOnly):
    """Trains a part of ``predictor`` with AdamW and a schedule, and exports all of it.

    Args:
        learning_rate: Peak learning rate.
        weight_decay: Decoupled weight decay.
        schedule: How the learning rate falls.
        warmup: Share of all steps in which it rises.
        seed: Seed of the initial weights; None is the run's ``seed_everything``.
    """

    predictor: DynamicThresholdPredictor

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float,
        schedule: Schedule,
        warmup: float,
        seed: int | None,
    ) -> None:
        super().__init__(seed)
        if learning_rate <= 0:
            raise ConfigError(f"learning_rate is {learning_rate}", remedy="choose more than 0")
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.schedule: Schedule = schedule
        self.warmup = warmup

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return AdamW over what is trained, and the schedule."""
        optimizer = AdamW(
            self.trained().values(), lr=self.learning_rate, weight_decay=self.weight_decay
        )
        return self.scheduled(self.schedule, self.warmup, optimizer)

    def export(self, folder: Path) -> None:
        """Write the predictor as a folder, ``predictor``."""
        self.predictor.save_pretrained(folder / "predictor")

    def record(self, results: Sequence[Result]) -> None:
        """Log figures, and append them to the run's ``results.jsonl``."""
        if self.trainer.sanity_checking:
            return
        for result in results:
            if result.value is not None:
                prog_bar = result.name == self.monitor
                self.log(result.name, result.value, prog_bar=prog_bar, batch_size=1)
        if self.trainer.is_global_zero:
            append_results(self.run_folder / "results.jsonl", results)


def load_predictor(folder: str, names: Backbone) -> DynamicThresholdPredictor:
    """Return the predictor an earlier stage exported, to be trained further on its backbone.

    Raises:
        ConfigError: If the features of this backbone have other widths.
        ModelError: If it was trained on other encoders, or the folder holds no predictor.
    """
    encoders, sizes = read_encoders(names)
    predictor = DynamicThresholdPredictor.from_pretrained(folder)
    own = predictor.config.sizes
    if own != sizes:
        raise ConfigError(
            f"{folder} was made for another backbone: {own}, here {sizes}",
            remedy="train it on this backbone",
        )
    predictor.check_encoders(encoders)
    predictor.encoders = encoders
    return predictor


def agreement(predicted: Sequence[float], truth: Sequence[float]) -> dict[str, float | None]:
    """Return squared error, R2 and Spearman's rank correlation; None where one is not defined.

    >>> {name: round(value, 9) for name, value in agreement([0.0, 1.0], [0.0, 1.0]).items()}
    {'mse': 0.0, 'r2': 1.0, 'spearman': 1.0}
    >>> agreement([0.2, 0.4], [1.0, 1.0])["r2"] is None
    True
    """
    guess, gold = np.asarray(predicted), np.asarray(truth)
    mse = float(((guess - gold) ** 2).mean())
    if gold.var() == 0:
        return {"mse": mse, "r2": None, "spearman": None}
    rank = float(stats.spearmanr(guess, gold).statistic) if guess.var() > 0 else None
    return {"mse": mse, "r2": 1 - mse / float(gold.var()), "spearman": rank}
