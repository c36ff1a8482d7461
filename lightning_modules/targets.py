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
from qpriv.models.preprocessing import Preprocessor


class Targets:
    """A figure or map for every sample, computed once and found again by the sample's content.

    Args:
        folder: Where it lies; its name must tell everything the target depends on.
        compute: From a batch to its targets, ``[B, ...]``.
    """

    def __init__(self, folder: Path, compute: Callable[[VQABatch], Tensor]) -> None:
        self.store, self.compute = TensorStore(folder), compute

    def __call__(self, batch: VQABatch) -> Tensor:
        """Return the targets of a batch, ``[B, ...]``."""
        masks = batch.attention_mask.bool()
        ids = [row[mask].float() for row, mask in zip(batch.input_ids, masks, strict=True)]
        inputs = [
            torch.cat((pixels.flatten(), words))
            for pixels, words in zip(batch.pixel_values, ids, strict=True)
        ]
        found = cached(
            self.store, inputs, lambda rows: {"target": self.compute(batch[rows])}, CHUNK
        )
        return found["target"].to(batch.pixel_values.device)


def prepare(
    targets: Sequence[Targets], preprocessor: Preprocessor, trainer: L.Trainer, title: str
) -> list[VQASample]:
    """Make the targets of all training and validation samples, shared over the processes.

    What a killed run had made is found again.

    Args:
        targets: What to make.
        preprocessor: Makes batches.
        trainer: Its data module offers the samples.
        title: Says on the progress bar what is going on.

    Returns:
        The samples.

    Raises:
        ConfigError: If the data module offers no samples.
    """
    datamodule = getattr(trainer, "datamodule", None)
    if datamodule is None or not hasattr(datamodule, "samples"):
        raise ConfigError(
            f"{type(datamodule).__name__} offers no `samples`",
            remedy="use a VQADataModule: targets are made before the first epoch",
        )
    samples = [*datamodule.samples("train"), *datamodule.samples("val")]
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
    return samples
