"""LLaVA-style conversation JSON: the instruction files that users already own."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from .base import VQADataset
from .json_stream import iter_records
from .reading import draw, has_gold, infer_answer_type, parse_answer_type
from .report import DataReport
from .sample import VQASample
from .tree import FileTree

_IMAGE = "<image>"
_HUMAN = frozenset({"human", "user"})


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
    {"from": "gpt", "value": "..."}, ...]}``; LLaVA-Med adds ``answer_type``.

    Args:
        root: Folder or archive with the files and, anywhere below it, the images.
        split: ``train``, ``val`` or ``test``; it only names the samples.
        file: Name of the split's file; ``<split>.json`` where None.
        cap: Largest number of pairs, drawn by image over the whole file; all where None.
        seed: Seed of the draw.

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
    ) -> None:
        self.check_split(split)
        report = DataReport(self.name, split)
        tree = FileTree(root, report)
        rows = _pairs(tree, split, file or f"{split}.json", report)
        super().__init__(split, draw(rows, report, cap, seed), report)


def _pairs(
    tree: FileTree, split: str, name: str, report: DataReport
) -> Iterator[tuple[str, VQASample]]:
    file = tree.require(name, remedy="name the conversation file")
    report.files += (file.name,)
    images = tree.images(parts=None)
    for index, record in iter_records(file, _Record):
        turns = record.conversations or record.conversatons or []
        pairs = [
            (question.value, answer.value)
            for question, answer in zip(turns[::2], turns[1::2], strict=False)
            if question.speaker in _HUMAN
        ]
        report.read += max(len(pairs), 1)
        if not isinstance(record.image, str):
            report.drop(
                "no image" if record.image is None else "several images", max(len(pairs), 1)
            )
            continue
        if not pairs:
            report.drop("no question followed by an answer")
        where, identity = f"{file.name}, record {index}", index if record.id is None else record.id
        picture = images.find(record.image, where)
        for number, (question, answer) in enumerate(pairs):
            if has_gold(answer, report):
                kind = record.answer_type
                yield (
                    picture.id,
                    VQASample(
                        dataset="Conversations",
                        split=split,
                        qid=str(identity) if len(pairs) == 1 else f"{identity}-{number}",
                        image_id=picture.id,
                        group_id=f"conversations/{picture.id}",
                        image=picture.source,
                        question=question.replace(_IMAGE, "").strip(),
                        answer=answer.strip(),
                        answers=(answer.strip(),),
                        answer_type=parse_answer_type(kind, answer, report)
                        if kind
                        else infer_answer_type(answer),
                    ),
                )
