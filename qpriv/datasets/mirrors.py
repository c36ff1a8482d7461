"""Parquet mirrors with nothing but image, question and answer, as the medical sets have them."""

from collections.abc import Iterator

import msgspec

from .files import DataFile
from .groups import Groups
from .parquet import ParquetImage, content_id, iter_rows
from .reading import has_gold, infer_answer_type
from .report import DataReport
from .sample import VQASample


class _Row(msgspec.Struct, gc=False):
    question: str
    answer: str


def iter_mirror(
    dataset: str,
    split: str,
    files: list[DataFile],
    report: DataReport,
    group_field: str | None = None,
) -> Iterator[tuple[str, VQASample]]:
    """Yield group and sample of every row.

    The mirrors have no ids and no answer types: a question is named by its position, an image by
    a hash of its bytes, and closed means yes or no. That is fewer than the release calls closed.
    """
    report.notes.append(
        "a mirror without ids and answer types: images are named by their content, and closed "
        "means yes or no, so closed and open scores do not compare with the release's"
    )
    position, groups = 0, Groups(dataset, report, group_field)
    kind = groups.extended(_Row)
    for file in files:
        report.files += (file.name,)
        for group, index, row in iter_rows(file, kind, report=report):
            report.read += 1
            qid, position = str(position), position + 1
            if not has_gold(row.answer, report):
                continue
            image_id = content_id(file, group, index)
            sample = VQASample(
                dataset=dataset,
                split=split,
                qid=qid,
                image_id=image_id,
                group_id=groups.of(row, f"{file.name}, row {position - 1}")
                or f"{dataset}/{image_id}",
                image=ParquetImage(file, group, index),
                question=row.question,
                answer=row.answer,
                answers=(row.answer,),
                answer_type=infer_answer_type(row.answer),
            )
            yield sample.group_id, sample
