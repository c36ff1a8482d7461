"""`SplitDataModule`: loaders, caps and sample order for any data set."""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

import lightning as L
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from qpriv.datasets.base import VQADataset
from qpriv.datasets.folds import sample_by_group
from qpriv.datasets.report import OnBadRow
from qpriv.datasets.sample import AnswerRule, VQASample
from qpriv.datasets.sampler import EpochSampler, ResumableLoader
from qpriv.errors import ConfigError, DataError

from .texts import FittingTexts, samples_of

Split = Literal["train", "val", "test"]
T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(eq=False, repr=False, kw_only=True)
class SplitDataModule(L.LightningDataModule, ABC, Generic[T]):
    """Train, val and test loaders over typed samples.

    The data side knows samples, the model side tensors: batches are made by the ``preprocessor``
    of the LightningModule that is trained. A subclass is a dataclass whose fields are the set's
    own settings and which returns its data set in `dataset`:

        @dataclass(eq=False, repr=False, kw_only=True)
        class SLAKE(VQADataModule):
            root: str = "data/slake"

            def dataset(self, split: Split) -> VQADataset:
                return slake.SLAKE(self.root, split)

    Args:
        batch_size: Training samples a step and process.
        eval_batch_size: Samples a batch in validation, test and prediction.
        num_workers: Processes that read and preprocess; 0 is the training process itself.
        max_train: Largest number of training samples; more are left out by a seeded draw.
        max_eval: The same for validation and test.
        seed: Seed of the order and of the draws; None is the run's ``seed_everything``.
    """

    batch_size: int = 128
    eval_batch_size: int = 64
    num_workers: int = 0
    max_train: int | None = None
    max_eval: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers before anything is read."""
        super().__init__()
        self._datasets: dict[str, Dataset[T]] = {}
        self._loader: ResumableLoader[T] | None = None
        self._resume: dict[str, int] | None = None
        for name in ("batch_size", "eval_batch_size", "max_train", "max_eval"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}", remedy="choose 1 or more")

    @abstractmethod
    def dataset(self, split: Split) -> Dataset[T]:
        """Return a split of the data set; called once a split."""

    def setup(self, stage: str) -> None:
        """Read the splits a stage needs.

        Raises:
            DataError: If a split is missing or empty.
        """
        splits: dict[str, tuple[Split, ...]] = {"fit": ("train", "val"), "validate": ("val",)}
        for split in splits.get(stage, ("test",)):
            self.read(split)

    def read(self, split: Split) -> Dataset[T]:
        """Return a split, capped, reading it at the first call.

        Raises:
            DataError: If it is missing or empty.
        """
        if split not in self._datasets:
            whole = self.dataset(split)
            if not len(cast(Sized, whole)):
                name = f"{type(self).__name__}/{split}"
                raise DataError(f"{name} is empty", remedy="check the folder, split and filters")
            for account in self.accounts(whole, split):
                logger.info("%s", account)
            self._datasets[split] = self._capped(whole, split)
        return self._datasets[split]

    def loaded(self, split: Split) -> Dataset[T]:
        """Return the split that batches are made from; the model exists by then."""
        return self.read(split)

    def accounts(self, whole: Dataset[T], split: Split) -> Iterable[object]:
        """Return what is logged of a split as it is read: its rows, and those left out."""
        return (f"{type(self).__name__}/{split}: {len(cast(Sized, whole))} samples",)

    def train_dataloader(self) -> ResumableLoader[T]:
        """Return the shuffled loader, which knows its position."""
        self._loader = ResumableLoader(
            self.loaded("train"),
            batch_size=self.batch_size,
            sampler=self._sampler("train", shuffle=True),
            collate=self._collate(),
            num_workers=self.num_workers,
        )
        if self._resume is not None:
            self._loader.load_state_dict(self._resume)
        return self._loader

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the training loader."""
        return {} if self._loader is None else {"train": self._loader.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the training loader go on from a saved position.

        Trainers restore a loader's own state only if nobody has asked for the number of steps
        before, as every schedule does; a data module's state they restore always.
        """
        self._resume = state_dict.get("train")

    def val_dataloader(self) -> DataLoader[T]:
        """Return the validation samples in order, each once over all processes."""
        return self._eval_loader("val")

    def test_dataloader(self) -> DataLoader[T]:
        """Return the test samples in order, each once over all processes."""
        return self._eval_loader("test")

    def predict_dataloader(self) -> DataLoader[T]:
        """Return the test samples in order, each once over all processes."""
        return self._eval_loader("test")

    def _eval_loader(self, split: Split) -> DataLoader[T]:
        # an own generator: a loader would draw its workers' seed from the global random numbers
        return DataLoader(
            self.loaded(split),
            batch_size=self.eval_batch_size,
            sampler=self._sampler(split, shuffle=False),
            collate_fn=self._collate(),
            num_workers=self.num_workers,
            generator=torch.Generator(),
        )

    def _sampler(self, split: Split, *, shuffle: bool) -> EpochSampler:
        rank, world_size, module = 0, 1, None
        if self.trainer is not None:
            rank, world_size = self.trainer.global_rank, self.trainer.world_size
            module = self.trainer.lightning_module
            # federated processes share clients, not samples: each reads the batches of all
            if shuffle and getattr(module, "data_replicas", world_size) == 1:
                rank, world_size = 0, 1
        return EpochSampler(
            cast(Sized, self.loaded(split)),
            seed=self.run_seed,
            shuffle=shuffle,
            rank=rank,
            world_size=world_size,
            even=getattr(module, "is_sharded", False),
        )

    def _collate(self) -> Callable[[Sequence[T]], Any]:
        module = self.trainer.lightning_module if self.trainer is not None else None
        if module is None or not hasattr(module, "preprocessor"):
            raise ConfigError(
                "batches are made by the LightningModule's `preprocessor`, and there is none",
                where=type(self).__name__,
                remedy="pass the DataModule to a Trainer, with a module that has one",
            )
        return cast(Callable[[Sequence[T]], Any], module.preprocessor)

    def _capped(self, whole: Dataset[T], split: Split) -> Dataset[T]:
        size, cap = len(cast(Sized, whole)), self.max_train if split == "train" else self.max_eval
        if cap is None or size <= cap:
            return whole
        logger.info("%s/%s: a draw of %d of %d samples", type(self).__name__, split, cap, size)
        return Subset(whole, self.draw(whole, cap))

    def draw(self, whole: Dataset[T], cap: int) -> list[int]:
        """Return the numbers of ``cap`` samples."""
        order = np.random.default_rng(self.run_seed).permutation(len(cast(Sized, whole)))
        return sorted(order[:cap].tolist())

    @property
    def run_seed(self) -> int:
        """Return the seed of the order: ``seed``, or what `seed_everything` was given, or 0."""
        return self.seed if self.seed is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))


class VQADataModule(SplitDataModule[VQASample]):
    """A `SplitDataModule` over questions about images."""

    source: ClassVar[type[VQADataset]] = VQADataset
    """The data set class, which knows how answers are scored."""

    @property
    def answer_rule(self) -> AnswerRule:
        """Return how the set's answers are scored."""
        return self.source.rule

    def __post_init__(self) -> None:
        """Check the numbers before anything is read."""
        super().__post_init__()
        self._texts = FittingTexts()
        self._preprocessor: object = None

    @property
    def on_bad_text(self) -> OnBadRow:
        """Return what is done about a text that the model does not take."""
        return "stop"

    def use(self, preprocessor: object) -> None:
        """Check texts with this preprocessor when no trainer provides a model, as in a client.

        Args:
            preprocessor: What makes batches of samples; its ``check_text`` is asked where it has
                one.
        """
        self._preprocessor = preprocessor

    def loaded(self, split: Split) -> Dataset[VQASample]:
        """Return a split; once the model is there, those of its samples whose text it takes.

        Raises:
            DataError: If it does not take one, and `on_bad_text` is ``stop``.
        """
        return self.fitting(split, self.read(split))

    def fitting(self, name: str, whole: Dataset[VQASample]) -> Dataset[VQASample]:
        """Return the samples whose text the model takes; all of them before there is a model.

        Args:
            name: Name of the split or fold, whose texts are checked once a model.
            whole: The samples.

        Raises:
            DataError: If it does not take one, and `on_bad_text` is ``stop``.
        """
        module = self.trainer.lightning_module if self.trainer is not None else None
        preprocessor = self._preprocessor or getattr(module, "preprocessor", None)
        check = getattr(preprocessor, "check_text", None)
        return whole if check is None else self._texts.of(name, whole, check, self.on_bad_text)

    def accounts(self, whole: Dataset[VQASample], split: Split) -> Iterable[object]:
        """Return the reader's report."""
        return (cast(VQADataset, whole).report,)

    def samples(self, split: Split) -> Sequence[VQASample]:
        """Return the samples of a split of which batches are made, capped."""
        return samples_of(self.loaded(split))

    def is_whole(self, split: Split) -> bool:
        """Return whether a split has every row of the release: none capped, none dropped."""
        dataset = self.loaded(split)
        return isinstance(dataset, VQADataset) and not dataset.report.dropped

    def members(self) -> Sequence[VQASample]:
        """Return the samples that are trained on."""
        return self.samples("train")

    def draw(self, whole: Dataset[VQASample], cap: int) -> list[int]:
        """Return the numbers of at most ``cap`` samples, whole images as far as possible."""
        rows = ((whole[index].group_id, index) for index in range(len(cast(Sized, whole))))
        return sample_by_group(rows, cap, self.run_seed)
