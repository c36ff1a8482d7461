"""`TrainedOnly`: the base class of all modules of the suite."""

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import lightning as L
import torch
import torch.distributed as dist
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn

from qpriv.datasets.sample import VQASample
from qpriv.errors import CheckpointError, ConfigError
from qpriv.models.fingerprint import fingerprint
from qpriv.models.llava.quantization import quantised_layers
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.ranks import world
from qpriv.paradigms.recipe import Schedule, warmed_up

from .precision import check_precision
from .refusals import refuse, write_nowhere

_IDENTITY = "qpriv_base"
Row = TypeVar("Row")


class TrainedOnly(L.LightningModule):
    """A module whose checkpoints hold only the trained weights, not the frozen ones.

    It loads weights in ``configure_model``, after the data is read. A missing folder or an empty
    split is therefore reported before a large model loads.
    """

    monitor: ClassVar[str] = "val/loss"
    """The metric that selects the best epoch."""

    monitor_mode: ClassVar[Literal["min", "max"]] = "min"
    """Whether a smaller or a larger value is better."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        # checkpoints lack the frozen weights; `on_load_checkpoint` checks the keys instead
        self.strict_loading = False
        self._seed = seed
        self._weights_epoch = -1

    def configure_callbacks(self) -> list[L.Callback]:
        """Check the trainer's settings; this is the first hook that a trainer calls.

        Raises:
            ConfigError: If a setting cannot work with this module.
        """
        refuse(self.trainer, self)
        if getattr(self.trainer, "fast_dev_run", False):
            self._trial = write_nowhere(self.trainer)
        return []

    def setup(self, stage: str) -> None:
        """Check the trainer's precision before weights load.

        Raises:
            ConfigError: If the module cannot work in this precision.
        """
        check_precision(self.trainer)

    @abstractmethod
    def frozen_identity(self) -> Mapping[str, str]:
        """Return digests of the frozen parts that the trained weights belong to, by name."""

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Write the trained weights in a form that needs no trainer."""

    def how_to_load(self, folder: Path) -> str:
        """Return instructions for loading what `export` wrote into a folder."""
        return f"exported to {folder}"

    @property
    def seed(self) -> int:
        """Return the seed of the run: ``seed``, or that of `seed_everything`, or 0."""
        given = self._seed
        return given if given is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))

    @property
    def epoch(self) -> int:
        """Return the epoch of the metrics: the current one in a fit, else the checkpoint's."""
        fits = self.trainer.state.fn == "fit"
        return self.trainer.current_epoch if fits else self._weights_epoch

    @property
    def run_folder(self) -> Path:
        """Return the folder that this run writes to."""
        return Path(self.trainer.default_root_dir)

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the trained parameters by name."""
        return {name: value for name, value in self.named_parameters() if value.requires_grad}

    def on_train_epoch_end(self) -> None:
        """Record the epoch of the weights, for a test after the fit."""
        self._weights_epoch = self.trainer.current_epoch

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the trained weights only, with the identity of the frozen parts."""
        names = self.trained()
        checkpoint["state_dict"] = {
            name: value for name, value in checkpoint["state_dict"].items() if name in names
        }
        checkpoint[_IDENTITY] = dict(self.frozen_identity())

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check that a checkpoint belongs to this module.

        Raises:
            CheckpointError: If the base model, or the name or shape of a weight, differs.
        """
        stored, own = checkpoint.get(_IDENTITY, {}), self.frozen_identity()
        for key, value in own.items():
            if stored.get(key) != value:
                raise CheckpointError(
                    f"it was trained on {key} {stored.get(key)}, this is {value}",
                    where="--ckpt_path",
                    remedy=f"give the {key} it was trained on",
                )
        check_names(self.trained(), checkpoint["state_dict"])
        self._weights_epoch = int(checkpoint.get("epoch", -1))

    @property
    def planned_steps(self) -> float:
        """Return the planned optimiser steps of this fit; ``inf`` without a planned end."""
        steps = self.trainer.estimated_stepping_batches
        return float("inf") if steps == -1 else steps  # a loader without a length

    def scheduled(
        self, schedule: Schedule, warmup: float, optimizer: torch.optim.Optimizer
    ) -> OptimizerLRSchedulerConfig:
        """Return an optimiser with its schedule over all steps of this fit.

        Args:
            schedule: How the learning rate falls after the warm-up.
            warmup: Share of all steps in which the learning rate rises, in [0, 1].
            optimizer: The optimiser, with the peak learning rate.

        Raises:
            ConfigError: If the schedule or its warm-up needs an end and the fit has none.
        """
        steps = self.planned_steps
        if steps == float("inf") and (schedule != "constant" or warmup):
            needs = f"schedule {schedule}" if schedule != "constant" else f"warm-up of {warmup:.0%}"
            raise ConfigError(
                f"a {needs} needs to know the number of steps",
                where="--trainer.max_epochs",
                remedy="give max_epochs or max_steps, or choose a constant schedule, warmup 0",
            )
        scheduler = warmed_up(optimizer, schedule, warmup, steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


def check_names(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Check that a state fits a module exactly, because a partial load would go unnoticed.

    Raises:
        CheckpointError: If a name is missing or unknown, or a shape differs.
    """
    problems = {
        "misses": sorted(own.keys() - given.keys()),
        "has unknown": sorted(given.keys() - own.keys()),
        "misshapes": sorted(n for n in own.keys() & given.keys() if own[n].shape != given[n].shape),
    }
    for verb, names in problems.items():
        if names:
            raise CheckpointError(
                f"it {verb} {len(names)} trained weights of {len(own)}, such as {names[0]}",
                where="--ckpt_path",
                remedy="give the settings it was trained with",
            )


def gather(rows: list[Row]) -> list[Row]:
    """Return the rows of all processes on every process."""
    if world() == 1:
        return rows
    shares: list[list[Row]] = [[] for _ in range(world())]
    dist.all_gather_object(shares, rows)
    return [row for share in shares for row in share]


def base_fingerprint(model: VisionLanguageModel) -> str:
    """Return a digest of the weights under LoRA: encoders, projector, first and last layer, head.

    In quantised layers it covers only the norms, because devices round projections differently.
    """
    first, last = model.decoder_layers[0], model.decoder_layers[-1]
    layers = [first, last]
    if model.is_quantised:
        parts = [part for layer in layers for part in layer.children()]
        layers = [part for part in parts if not quantised_layers(part)]
    ends = (model.projector, *layers, model.lm_head)
    return fingerprint(ends, (model.encoder_fingerprint(),))


def members(trainer: L.Trainer) -> Sequence[VQASample]:
    """Return the training samples of a trainer's DataModule.

    Raises:
        ConfigError: If the DataModule does not list them.
    """
    listed = getattr(getattr(trainer, "datamodule", None), "members", None)
    if listed is None:
        raise ConfigError(
            "several clients share the training set, and there is no DataModule that lists it",
            where="--data",
            remedy="fit with a VQADataModule",
        )
    samples: Sequence[VQASample] = listed()
    return samples
