"""Texts that are too long for a model: an error before training, or rows dropped and counted."""

import logging
from collections.abc import Callable, Sequence, Sized
from copy import deepcopy
from typing import TypeVar, cast

from torch.utils.data import Dataset

from qpriv.datasets.base import VQADataset
from qpriv.datasets.report import DataReport, OnBadRow
from qpriv.datasets.sample import VQASample
from qpriv.errors import DataError

T = TypeVar("T")
TextCheck = Callable[[VQASample], None]
"""What raises a `DataError` where a model does not take a sample's text."""

logger = logging.getLogger(__name__)


class FittingTexts:
    """The samples of data sets whose text a model takes; each set is looked at once a model."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[TextCheck, Dataset[VQASample]]] = {}

    def of(
        self, name: str, whole: Dataset[VQASample], check: TextCheck, on_bad_row: OnBadRow
    ) -> Dataset[VQASample]:
        """Return the samples that pass a model's check, and name and count the others.

        Args:
            name: The split, or whatever else tells the set from others.
            whole: The set, the same one whenever it has this name.
            check: The model's check.
            on_bad_row: What is done about a text that does not pass.

        Raises:
            DataError: If one does not pass and ``on_bad_row`` is ``stop``, or none does.
        """
        checked, fitting = self._known.get(name, (None, whole))
        if checked != check:
            fitting = _fitting(name, whole, check, on_bad_row)
            self._known[name] = check, fitting
        return fitting


def _fitting(
    name: str, whole: Dataset[VQASample], check: TextCheck, on_bad_row: OnBadRow
) -> Dataset[VQASample]:
    samples = samples_of(whole)
    report = deepcopy(getattr(whole, "report", None))  # a draw out of a split has none
    report = report or DataReport.of(samples[0].dataset if samples else "", name, samples)
    report.on_bad_row = on_bad_row
    kept = accepted(samples, check, report)
    if len(kept) == len(samples):
        return whole
    left = len(samples) - len(kept)
    logger.warning("%s: %d rows are left out, such as %s", name, left, report.bad[-1])
    return VQADataset(name, kept, report)


def accepted(
    samples: Sequence[VQASample], check: TextCheck, report: DataReport
) -> Sequence[VQASample]:
    """Return the samples that pass a check, and account for the others as bad rows.

    Raises:
        DataError: If one does not pass and the report stops at bad rows.
    """
    kept = []
    for sample in samples:
        try:
            check(sample)
        except DataError as error:
            report.refuse(error)
        else:
            kept.append(sample)
    return kept


def samples_of(dataset: Dataset[T]) -> list[T]:
    """Return the samples of a data set in their order."""
    return [dataset[index] for index in range(len(cast(Sized, dataset)))]
