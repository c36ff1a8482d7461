"""Prediction files as the VQA and GQA test servers take them."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from qpriv.errors import DataError

from .sample import VQASample


def write_submission(
    path: Path, samples: Iterable[VQASample], predictions: Mapping[str, str]
) -> None:
    """Write the answers to all questions of a split of VQAv2, OK-VQA or GQA.

    The servers reject a file in which a question is missing, so every sample needs an answer.

    Args:
        path: The ``.json`` file to write.
        samples: Every question of the split.
        predictions: Answers by `VQASample.key`.

    Raises:
        DataError: If an answer is missing, two questions have one id, or the set has no test
            server.
    """
    rows, seen = [], set[tuple[str, str]]()
    for sample in samples:
        if (sample.dataset, sample.qid) in seen:
            raise DataError(
                "two answers to one question",
                where=sample.key,
                remedy="the ids of the questions file must be unique: get it again",
            )
        seen.add((sample.dataset, sample.qid))
        if sample.dataset not in _ROW:
            raise DataError(f"{sample.dataset} has no test server", where=sample.key)
        if sample.key not in predictions:
            raise DataError(
                "no answer to this question",
                where=sample.key,
                remedy="predict the whole split, without a cap",
            )
        rows.append(_ROW[sample.dataset](sample, predictions[sample.key]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(rows))


def has_server(dataset: str) -> bool:
    """Return whether predictions of a set are scored by a server.

    >>> has_server("GQA"), has_server("SLAKE")
    (True, False)
    """
    return dataset in _ROW


def _vqa(sample: VQASample, answer: str) -> dict[str, Any]:
    # the official tool compares ids with those of the questions file, which are numbers; any that
    # is none, or would lose its zeros, stays as it is
    number = sample.qid.isdecimal() and str(int(sample.qid)) == sample.qid
    return {"question_id": int(sample.qid) if number else sample.qid, "answer": answer}


def _gqa(sample: VQASample, answer: str) -> dict[str, Any]:
    # ids keep their leading zeros, and the server compares raw strings in lower case
    return {"questionId": sample.qid, "prediction": answer.strip().lower().rstrip(".")}


_ROW: dict[str, Callable[[VQASample, str], dict[str, Any]]] = {
    "VQAv2": _vqa,
    "OKVQA": _vqa,
    "GQA": _gqa,
}
