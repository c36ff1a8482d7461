"""LLaVA-style conversation JSON: the instruction files that users already own."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from .base import IMAGE_MARK, VQADataset
from .groups import Groups
from .reading import draw, has_gold, infer_answer_type, named_apart, parse_answer_type
from .records import iter_records
from .report import DataReport, OnBadRow
from .sample import VQASample
from .tree import FileTree

_PEOPLE = frozenset({"human", "user"})
_MODELS = frozenset({"gpt", "assistant"})


class _Turn(msgspec.Struct, gc=False):
    speaker: str = msgspec.field(name="from")
    value: str = msgspec.field()


class _Record(msgspec.Struct, gc=False):
    id: int | str | None = None
    image: str | list[str] | None = None
    conversations: list[_Turn] | None = None
    conversatons: list[_Turn] | None = None  # so spelt in the files of LLaVA-Med
    answer_type: str | None = None


class Conversations(VQADataset):
    """Question and answer pairs of a conversation file, one sample a pair.

    A record is ``{"id", "image", "conversations": [{"from": "human", "value": "<image> ..."},
    {"from": "gpt", "value": "..."}, ...]}``; LLaVA-Med adds ``answer_type``. A pair is a turn of a
    person and the turn of the model that follows it; every other turn is a row that is dropped
    with the reason. ``image`` may be a list of one. The file may also be JSON Lines or a table, see
    `qpriv.datasets.records`.

    Args:
        root: Folder or archive with the files and, anywhere below it, the images.
        split: ``train``, ``val`` or ``test``; it only names the samples.
        file: Name of the split's file; ``<split>.json`` where None.
        cap: Largest number of pairs, drawn by image over the whole file; all where None.
        seed: Seed of the draw.
        group_field: Field of a record that names its group, such as the patient; a common name
            where None, and the image where there is none, see `qpriv.datasets.groups`.
        on_bad_row: ``stop`` raises the error of a row that cannot be used, ``drop`` leaves such rows
            out, named and counted.

    Raises:
        DataError: If a file is missing or broken.
    """

    rule = "medical"

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        file: str | None = None,
        cap: int | None = None,
        seed: int = 0,
        group_field: str | None = None,
        on_bad_row: OnBadRow = "stop",
    ) -> None:
        self.check_split(split)
        report = DataReport(self.name, split, on_bad_row)
        tree = FileTree(root, report)
        groups = Groups("conversations", report, group_field)
        rows = _pairs(tree, split, file or f"{split}.json", groups, report)
        super().__init__(
            split, draw(named_apart(rows, report), report, cap, seed, group_field), report
        )


def _pairs(
    tree: FileTree, split: str, name: str, groups: Groups, report: DataReport
) -> Iterator[tuple[str, VQASample]]:
    file = tree.require(name, remedy=f"give the file this name, or name it by --data.{split}_file")
    report.files += (file.name,)
    images = tree.images(parts=None)
    kind, needed = groups.extended(_Record), ("image", "conversations")
    for index, record in iter_records(file, kind, needed=needed, report=report):
        pairs, alone = _paired(record.conversations or record.conversatons or [])
        image, reason = _only_image(record)
        rows = len(pairs) + alone.total()
        report.read += rows or 1
        if not rows:
            report.drop("no turns")
        elif image is None:
            report.drop(reason, rows)
        else:
            for why, turns in alone.items():
                report.drop(why, turns)
        if image is None or not pairs:
            continue
        where, identity = f"{file.name}, record {index}", index if record.id is None else record.id
        picture = images.find(image, where)
        for number, (question, answer) in enumerate(pairs):
            if has_gold(answer, report):
                group = groups.of(record, where)
                yield (
                    group or picture.id,
                    VQASample(
                        dataset="Conversations",
                        split=split,
                        qid=str(identity) if len(pairs) == 1 else f"{identity}-{number}",
                        image_id=picture.id,
                        group_id=group or f"conversations/{picture.id}",
                        image=picture.source,
                        question=question.replace(IMAGE_MARK, "").strip(),
                        answer=answer.strip(),
                        answers=(answer.strip(),),
                        answer_type=parse_answer_type(record.answer_type, answer, report)
                        if record.answer_type
                        else infer_answer_type(answer),
                    ),
                )


def _paired(turns: Sequence[_Turn]) -> tuple[list[tuple[str, str]], Counter[str]]:
    """Return the questions that a model answers in the next turn, and why other turns are in none."""
    pairs: list[tuple[str, str]] = []
    alone: Counter[str] = Counter()
    asked: str | None = None
    for turn in turns:
        speaker = turn.speaker.strip().lower()
        if asked is not None and speaker not in _MODELS:
            alone["question without an answer in the next turn"] += 1
            asked = None
        if speaker in _PEOPLE:
            asked = turn.value
        elif speaker not in _MODELS:
            alone["turn of the system" if speaker == "system" else f"turn of {speaker!r}"] += 1
        elif asked is None:
            alone["answer without a question in the turn before"] += 1
        else:
            pairs.append((asked, turn.value))
            asked = None
    if asked is not None:
        alone["question without an answer in the next turn"] += 1
    return pairs, alone


def _only_image(record: _Record) -> tuple[str | None, str]:
    """Return the one image of a record, or None and why there is none."""
    images = [record.image] if isinstance(record.image, str) else record.image or []
    if len(images) == 1 and images[0]:
        return images[0], ""
    return None, "several images" if len(images) > 1 else "no image"
