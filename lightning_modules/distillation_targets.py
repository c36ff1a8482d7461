"""What teacher and student are fitted to: made once, before the first epoch, and kept on disk."""

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
    """A figure or map for every sample, computed once and found again by the sample's content.

    Args:
        folder: Where it lies; its name must tell everything the target depends on.
        compute: From a batch to its targets, ``[B, ...]``.
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
        name: Its method: ``samples``, or ``oracle_samples``, which not every module has.

    Raises:
        ConfigError: If it offers no ``samples``.
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
    """Make the targets of some samples, shared over the processes.

    What a killed run had made is found again.

    Args:
        targets: What to make.
        samples: Of which samples.
        preprocessor: Makes batches.
        trainer: Knows the processes.
        title: Says on the progress bar what is going on.
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
