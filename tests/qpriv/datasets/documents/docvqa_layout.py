"""Writing samples in DocVQA's own layout, so that fake documents pass through the real reader."""

import json
from collections.abc import Iterable
from pathlib import Path

from qpriv.datasets.documents.ocr import read_v2
from qpriv.datasets.sample import VQASample


def write_docvqa(samples: Iterable[VQASample], root: Path, split: str) -> Path:
    """Write question file, pages and OCR files; return the question file.

    Args:
        samples: Samples whose ``meta["text"]`` holds the words of their page.
        root: Folder of the release; made where it is missing.
        split: ``train``, ``val`` or ``test``; test gets no answers.
    """
    for folder in ("documents", "ocr_results"):
        (root / split / folder).mkdir(parents=True, exist_ok=True)
    records, written = [], set[str]()
    for number, sample in enumerate(samples):
        name = f"{sample.image_id}_1"
        if name not in written:
            written.add(name)
            sample.image.load().save(root / split / "documents" / f"{name}.png")
            ocr = json.dumps(read_v2(sample.meta["text"].load()))
            (root / split / "ocr_results" / f"{name}.json").write_text(ocr, encoding="utf-8")
        record: dict[str, object] = {
            "questionId": number,
            "question": sample.question,
            "question_types": ["form"],
            "image": f"documents/{name}.png",
            "docId": len(written),
            "ucsf_document_id": sample.group_id,
            "ucsf_document_page_no": "1",
            "data_split": split,
        }
        if split != "test":
            record["answers"] = list(sample.answers)
        records.append(record)
    content = {
        "dataset_name": "docvqa",
        "dataset_version": "1.0",
        "dataset_split": split,
        "data": records,
    }
    path = root / split / f"{split}_v1.0.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
