"""`PredictorModule`: the base class of teachers and student, which train parts of a predictor."""

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
        learning_rate: Peak learning rate; above 0.
        weight_decay: Decoupled weight decay.
        schedule: How the learning rate falls after the warm-up.
        warmup: Share of all steps in which the learning rate rises.
        seed: Seed of the initial weights; None is the run's ``seed_everything``.

    Raises:
        ConfigError: If the learning rate is not above 0.
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
        """Return AdamW over the trained weights, and the schedule."""
        optimizer = AdamW(
            self.trained().values(), lr=self.learning_rate, weight_decay=self.weight_decay
        )
        return self.scheduled(self.schedule, self.warmup, optimizer)

    def export(self, folder: Path) -> None:
        """Write the predictor into the subfolder ``predictor``."""
        self.predictor.save_pretrained(folder / "predictor")

    def record(self, results: Sequence[Result]) -> None:
        """Log results, and append them to the run's ``results.jsonl``."""
        if self.trainer.sanity_checking:
            return
        for result in results:
            if result.value is not None:
                prog_bar = result.name == self.monitor
                self.log(result.name, result.value, prog_bar=prog_bar, batch_size=1)
        if self.trainer.is_global_zero:
            append_results(self.run_folder / "results.jsonl", results)


def load_predictor(folder: str, names: Backbone) -> DynamicThresholdPredictor:
    """Return the predictor that an earlier stage exported, for further training.

    Raises:
        ConfigError: If the features of this backbone have other widths.
        ModelError: If the predictor was trained on other encoders, or the folder holds none.
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
    """Return mean squared error, R² and Spearman's rank correlation; None if undefined.

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
