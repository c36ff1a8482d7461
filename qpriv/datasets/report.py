"""`DataReport`: what a reader found in the files, with an account of every row."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, Self

from qpriv.errors import DataError

from .sample import MissingImage, VQASample

OnBadRow = Literal["stop", "drop"]
"""What is done about a row that cannot be used."""

IMAGE = "image"
"""What groups a row whose record names no group, unless the release has something larger."""

NAMED = "group "
"""What the name of a group begins with, behind the set's, where a record names it."""

_TOLD = 5  # missing images and bad rows that are named


@dataclass
class DataReport:
    """The account of one split: ``read`` equals ``kept`` plus everything in ``dropped``.

    Args:
        dataset: Name of the data set class.
        split: Name of the split.
        files: The files that were read.
        read: Rows found in the files.
        kept: Rows that became samples.
        on_bad_row: What is done about a row that cannot be used: ``stop`` raises its error, ``drop``
            leaves it out, named and counted.
        dropped: Rows left out, by reason.
        bad_rows: Rows among them that cannot be used.
        bad: The first of these, each with its place and what is wrong.
        bad_remedy: What to do about the first.
        repaired: Values that were read although they break the release's own format, by kind.
        renamed: Rows with the id of an earlier row, which got one of their own.
        duplicates: Kept rows whose image, question and answer repeat an earlier row.
        empty_golds: Rows without a gold answer where one is due; they are dropped.
        bare_golds: Kept rows whose gold answer is an article or punctuation alone, such as ``A``, of
            which published rules leave nothing; None until they were looked for.
        images: Distinct images of the kept rows.
        groups: Distinct groups of the kept rows: what stays together in every draw and fold.
        grouped_by: Kept rows by what groups them: a field of the record, or ``default_group``.
            Where rows of several fields were left out, the fields are told as one, joined by
            ``or``.
        default_group: What groups a row whose record names no group: ``image``, ``document``,
            ``provider`` or the field of the release.
        missing_images: Distinct images of the kept rows that are not there.
        missing: The first of them, each with what was found in its place.
        broken_images: Images that are there and cannot be decoded; None until they were decoded.
        shared_groups: Groups (images, patients) also found in another split, by that split's name.
        languages: Kept rows by language.
        answer_types: Kept rows by answer type.
        notes: One sentence each about what the reader had to decide.
    """

    dataset: str
    split: str
    on_bad_row: OnBadRow = "stop"
    files: tuple[str, ...] = ()
    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    bad_rows: int = 0
    bad: tuple[str, ...] = ()
    bad_remedy: str = ""
    repaired: Counter[str] = field(default_factory=Counter)
    renamed: int = 0
    duplicates: int = 0
    empty_golds: int = 0
    bare_golds: int | None = None
    images: int = 0
    groups: int = 0
    grouped_by: Counter[str] = field(default_factory=Counter)
    default_group: str = IMAGE
    missing_images: int = 0
    missing: tuple[str, ...] = ()
    broken_images: int | None = None
    shared_groups: dict[str, int] = field(default_factory=dict)
    languages: Counter[str] = field(default_factory=Counter)
    answer_types: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, dataset: str, split: str, samples: Iterable[VQASample]) -> Self:
        """Return the report of samples that were made rather than read: every row is kept."""
        report = cls(dataset, split)
        report.count(samples)
        report.read = report.kept
        return report

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def drop(self, reason: str, rows: int = 1) -> None:
        """Account for rows that do not become samples."""
        if rows:
            self.dropped[reason] += rows

    def refuse(self, error: DataError, rows: int = 1) -> None:
        """Account for rows that cannot be used.

        Raises:
            DataError: If ``on_bad_row`` is ``stop``.
        """
        if self.on_bad_row == "stop":
            remedy = f"{error.remedy}, or leave it out by `on_bad_row: drop`".removeprefix(", or ")
            raise DataError(error.what, where=error.where, remedy=remedy) from error
        self.drop(f"bad row: {error.what}", rows)
        self.bad_rows += rows
        self.bad_remedy = self.bad_remedy or error.remedy
        self.bad = (*self.bad, f"{error.where}: {error.what}")[:_TOLD]

    def check_rest(self) -> None:
        """Check that bad rows are not all there is: then the file is wrong, not the rows.

        Raises:
            DataError: If they are; tells of the first.
        """
        if self.bad_rows and self.bad_rows == self.read:
            raise DataError(
                f"none of {self.read} rows can be used, the first is {self.bad[0]}",
                where=", ".join(self.files),
                remedy=self.bad_remedy,
            )

    def count(self, samples: Iterable[VQASample]) -> None:
        """Fill in the counts that follow from the kept samples."""
        triplets: set[tuple[str, str, str]] = set()
        images: set[str] = set()
        groups: set[str] = set()
        named = 0
        missing: dict[str, str] = {}
        self.languages, self.answer_types = Counter(), Counter()
        self.kept = 0
        for sample in samples:
            self.kept += 1
            self.languages[sample.lang] += 1
            self.answer_types[sample.answer_type.value] += 1
            images.add(sample.image_id)
            groups.add(sample.group_id)
            named += is_named(sample)
            if isinstance(sample.image, MissingImage):
                missing[sample.image_id] = str(sample.image)
            triplets.add((sample.image_id, sample.question, sample.answer))
        self.images, self.groups = len(images), len(groups)
        self._group(named)
        self.lack(missing)
        self.duplicates = self.kept - len(triplets)

    def _group(self, named: int) -> None:
        """Count anew by what the kept rows are grouped, where more rows were counted.

        Args:
            named: Kept rows whose record names their group.
        """
        if self.grouped_by.total() <= self.kept:
            return
        default = self.default_group
        fields = " or ".join(name for name in self.grouped_by if name != default)
        self.grouped_by = +Counter({fields: named, default: self.kept - named})

    def lack(self, missing: Mapping[str, str]) -> None:
        """Record the missing images, given by id with a description of each."""
        self.missing_images = len(missing)
        self.missing = tuple(islice(missing.values(), _TOLD))

    def __str__(self) -> str:
        """Return the report as a few lines of text, empty entries left out."""
        lines = [f"{self.dataset}/{self.split}: {self.read} rows read, {self.kept} kept"]
        lines += [f"  dropped {rows}: {reason}" for reason, rows in self.dropped.most_common()]
        lines += [f"  repaired {rows}: {kind}" for kind, rows in self.repaired.most_common()]
        counts = {
            "ids that stand twice, told apart by ~2, ~3, ...": self.renamed,
            "exact duplicates": self.duplicates,
            "empty gold answers": self.empty_golds,
            "gold answers of which normalisation leaves nothing": self.bare_golds,
            "images": self.images,
            "missing images": self.missing_images,
            "broken images": self.broken_images,
        }
        lines += [f"  {name}: {value}" for name, value in counts.items() if value]
        if self.groups:
            lines.append(f"  groups: {self.groups}{self._grouping()}")
        lines += [f"  bad row: {told}" for told in self.bad]
        if self.bad_rows > len(self.bad) > 0:
            lines.append(f"  bad rows: {self.bad_rows - len(self.bad)} more")
        if self.missing:
            more = ", ..." if self.missing_images > len(self.missing) else ""
            lines.append(f"  missing: {', '.join(self.missing)}{more}")
        lines += [
            f"  {groups} images or patients shared with {split}"
            for split, groups in self.shared_groups.items()
        ]
        for name, counter in (("languages", self.languages), ("answers", self.answer_types)):
            if counter:
                shares = ", ".join(f"{key} {rows}" for key, rows in sorted(counter.items()))
                lines.append(f"  {name}: {shares}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def _grouping(self) -> str:
        """Return what groups the rows, and of several things how many rows each."""
        counts, default = self.grouped_by, self.default_group
        fields = sorted(counts, key=lambda name: (name == default, -counts[name]))
        if len(fields) < 2:
            return "".join(f", by {name}" for name in fields)
        named = ", ".join(f"{name} ({counts[name]} rows)" for name in fields[:-1])
        return f", by {named}; {counts[fields[-1]]} rows without it by {fields[-1]}"


def is_named(sample: VQASample) -> bool:
    """Return whether a record names the group of a sample."""
    own = sample.group_id.partition("/")[2]
    return own.startswith(NAMED) and own != sample.image_id
