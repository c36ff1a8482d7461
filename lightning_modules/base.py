"""`TrainedOnly`: what every module of the suite shares, around whatever it trains."""

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
    """A module whose checkpoints hold the trained weights, and nothing that was merely loaded.

    Weights are loaded in ``configure_model``, after the data was read, so that a missing folder
    or an empty split is reported before a large model is.
    """

    monitor: ClassVar[str] = "val/loss"
    """The metric whose best epoch is kept."""

    monitor_mode: ClassVar[Literal["min", "max"]] = "min"
    """Whether less or more of it is better."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        # the frozen weights are in no checkpoint; `on_load_checkpoint` checks the keys instead
        self.strict_loading = False
        self._seed = seed
        self._weights_epoch = -1

    def configure_callbacks(self) -> list[L.Callback]:
        """Refuse settings of the trainer that cannot work here; the first hook that a trainer calls.

        Raises:
            ConfigError: If it has one.
        """
        refuse(self.trainer, self)
        if getattr(self.trainer, "fast_dev_run", False):
            self._trial = write_nowhere(self.trainer)
        return []

    def setup(self, stage: str) -> None:
        """Refuse a precision the module cannot work in, before weights load.

        Raises:
            ConfigError: If the trainer has such a precision.
        """
        check_precision(self.trainer)

    @abstractmethod
    def frozen_identity(self) -> Mapping[str, str]:
        """Return what the trained weights only make sense with, such as the backbone's digest."""

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Write what was trained so that it can be used without a trainer."""

    def how_to_load(self, folder: Path) -> str:
        """Return what a person does with what `export` wrote into a folder."""
        return f"exported to {folder}"

    @property
    def seed(self) -> int:
        """Return the seed of the run: ``seed``, or what `seed_everything` was given, or 0."""
        given = self._seed
        return given if given is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))

    @property
    def epoch(self) -> int:
        """Return the epoch that figures belong to: the one at work, or that of a loaded checkpoint."""
        fits = self.trainer.state.fn == "fit"
        return self.trainer.current_epoch if fits else self._weights_epoch

    @property
    def run_folder(self) -> Path:
        """Return where this run writes."""
        return Path(self.trainer.default_root_dir)

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the trained parameters by name."""
        return {name: value for name, value in self.named_parameters() if value.requires_grad}

    def on_train_epoch_end(self) -> None:
        """Note which epoch the weights are of, for a test after the fit."""
        self._weights_epoch = self.trainer.current_epoch

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the trained weights, and name what they belong to."""
        names = self.trained()
        checkpoint["state_dict"] = {
            name: value for name, value in checkpoint["state_dict"].items() if name in names
        }
        checkpoint[_IDENTITY] = dict(self.frozen_identity())

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint that belongs to something else.

        Raises:
            CheckpointError: If the base model, or any name or shape, differs.
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
        """Return how many steps this fit is planned to take, ``inf`` where it has no planned end."""
        steps = self.trainer.estimated_stepping_batches
        return float("inf") if steps == -1 else steps  # of a loader without a length

    def scheduled(
        self, schedule: Schedule, warmup: float, optimizer: torch.optim.Optimizer
    ) -> OptimizerLRSchedulerConfig:
        """Return an optimiser with its schedule over all steps of this fit.

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
    """Check that a state fits a module exactly: a partial load trains on, silently wrong.

    Raises:
        CheckpointError: If a name is missing, unknown, or of another shape.
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
    """Return the rows of every process, on every process."""
    if world() == 1:
        return rows
    shares: list[list[Row]] = [[] for _ in range(world())]
    dist.all_gather_object(shares, rows)
    return [row for share in shares for row in share]


def base_fingerprint(model: VisionLanguageModel) -> str:
    """Return a digest of encoders, projector, first and last layer and head: what LoRA sits on.

    Of quantised layers it is that of the norms: devices round the projections each in their way.
    """
    first, last = model.decoder_layers[0], model.decoder_layers[-1]
    layers = [first, last]
    if model.is_quantised:
        parts = [part for layer in layers for part in layer.children()]
        layers = [part for part in parts if not quantised_layers(part)]
    ends = (model.projector, *layers, model.lm_head)
    return fingerprint(ends, (model.encoder_fingerprint(),))


def members(trainer: L.Trainer) -> Sequence[VQASample]:
    """Return the samples that a trainer's DataModule trains on.

    Raises:
        ConfigError: If it does not name them.
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
