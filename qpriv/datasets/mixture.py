"""`VQAMixture`: several sets as one, on which the threshold predictor is prepared."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from qpriv.errors import DataError

from .base import VQADataset
from .folds import sample_by_group
from .report import DataReport
from .sample import VQASample


class VQAMixture(VQADataset):
    """The union of several sets' samples of one split, at most so many of each.

    Args:
        datasets: The sets, each of the same split.
        cap: Largest number of samples of each, drawn by image.
        oracle_cap: Largest number of samples of each for the oracle search, which tries every
            ratio on every sample; they are drawn from those of ``cap``, see `oracle_samples`.
        seed: Seed of the draws.

    Raises:
        DataError: If there is no set, or they are of different splits.
    """

    def __init__(
        self,
        datasets: Sequence[VQADataset],
        cap: int | None = 3000,
        oracle_cap: int | None = 500,
        seed: int = 0,
    ) -> None:
        splits = {dataset.split for dataset in datasets}
        if len(splits) != 1:
            named = ", ".join(sorted(splits)) or "no set"
            raise DataError(
                f"a mixture of {named}", where=self.name, remedy="give sets of one split"
            )
        parts = [_capped(samples, cap, seed) for samples in _told_apart(datasets)]
        self.datasets = tuple(datasets)
        self.oracle_samples = [
            sample for part in parts for sample in _capped(part, oracle_cap, seed)
        ]
        """The samples the oracle search runs on."""
        split = splits.pop()
        report = _merged([dataset.report for dataset in datasets], DataReport(self.name, split))
        whole = sum(len(dataset) for dataset in datasets)
        samples = [sample for part in parts for sample in part]
        report.drop(f"beyond the cap of {cap} a set, drawn by image", whole - len(samples))
        super().__init__(split, samples, report)


def _told_apart(datasets: Sequence[VQADataset]) -> list[Sequence[VQASample]]:
    """Return the samples of each set; of a second set of one kind under ids of their own.

    Its groups keep their names: a patient or an image of both folders stays one group.
    """
    times = Counter[str]()
    found: list[Sequence[VQASample]] = []
    for dataset in datasets:
        name = dataset.report.dataset
        times[name] += 1
        mark = f"~set{times[name]}" if times[name] > 1 else ""
        found.append([replace(one, qid=one.qid + mark) for one in dataset.samples])
    return found


def _capped(samples: Sequence[VQASample], cap: int | None, seed: int) -> list[VQASample]:
    return sample_by_group(((sample.group_id, sample) for sample in samples), cap, seed)


def _merged(parts: Sequence[DataReport], whole: DataReport) -> DataReport:
    """Add up the accounts of the sets, reasons named by set."""
    for part in parts:
        whole.files += part.files
        whole.read += part.read
        whole.empty_golds += part.empty_golds
        whole.renamed += part.renamed
        whole.dropped += Counter({f"{part.dataset}: {key}": n for key, n in part.dropped.items()})
        whole.repaired += Counter({f"{part.dataset}: {key}": n for key, n in part.repaired.items()})
        whole.notes += [f"{part.dataset}: {note}" for note in part.notes]
    return whole
