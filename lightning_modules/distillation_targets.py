"""Targets of teacher and student: computed once before the first epoch, and cached on disk."""

from collections.abc import Callable, Sequence
from pathlib import Path

import lightning as L
import torch
from torch import Tensor
from tqdm import tqdm

from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError
from qpriv.models.batch import VQABatch
from qpriv.models.cache import CHUNK, TensorStore, cached
from qpriv.models.llava.preprocessing import Preprocessor


class Targets:
    """One value or map per sample, computed once and cached by the sample's content.

    Args:
        folder: Folder of the cache; its name must identify all that the targets depend on.
        compute: Maps a batch to its targets, ``[B, ...]``.
    """

    def __init__(self, folder: Path, compute: Callable[[VQABatch], Tensor]) -> None:
        self.store, self.compute = TensorStore(folder, ("target",)), compute

    def __call__(self, batch: VQABatch) -> Tensor:
        """Return the targets of a batch, ``[B, ...]``."""
        masks = batch.attention_mask.bool()
        ids = [row[mask].float() for row, mask in zip(batch.input_ids, masks, strict=True)]
        inputs = [
            torch.cat((pixels.flatten(), words))
            for pixels, words in zip(batch.pixel_values, ids, strict=True)
        ]
        found = cached(
            [self.store], inputs, lambda rows: {"target": self.compute(batch[rows])}, CHUNK
        )
        return found["target"].to(batch.pixel_values.device)


def offer(trainer: L.Trainer, name: str) -> list[VQASample]:
    """Return the training and validation samples that a trainer's data module offers.

    Args:
        trainer: Has the data module.
        name: Method of the data module: ``samples``, or the optional ``oracle_samples``.

    Raises:
        ConfigError: If the data module has no ``samples``.
    """
    datamodule = getattr(trainer, "datamodule", None)
    if not hasattr(datamodule, "samples"):
        raise ConfigError(
            f"{type(datamodule).__name__} offers no `samples`",
            remedy="use a VQADataModule: targets are made before the first epoch",
        )
    offered = getattr(datamodule, name, None)
    return [*offered("train"), *offered("val")] if offered else []


def prepare(
    targets: Sequence[Targets],
    samples: Sequence[VQASample],
    preprocessor: Preprocessor,
    trainer: L.Trainer,
    title: str,
) -> None:
    """Compute the targets of samples, shared over the processes.

    Targets that a killed run has already computed come from the cache.

    Args:
        targets: The targets to compute.
        samples: The samples.
        preprocessor: Turns samples into batches.
        trainer: Provides ranks, devices and barriers.
        title: Title of the progress bar.
    """
    mine = samples[trainer.global_rank :: trainer.world_size]
    with tqdm(total=len(mine), desc=title, disable=not trainer.is_global_zero) as bar:
        for start in range(0, len(mine), CHUNK):
            batch = preprocessor(mine[start : start + CHUNK])
            for target in targets:
                target(batch.to(trainer.strategy.root_device))
            bar.update(len(batch))
    trainer.strategy.barrier(title)
    for target in targets:
        target.store.refresh()
