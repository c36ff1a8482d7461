"""`Answered`: the outcome of one evaluated question, and the metrics over many."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from qpriv.datasets.normalisation import says_nothing
from qpriv.datasets.sample import AnswerRule, AnswerType
from qpriv.metrics.answers import ACCURACY, EMPTY, score_sample
from qpriv.metrics.means import IMAGE_GROUP, RATE, mean_result
from qpriv.models.llava.prepared import PreparedInputs
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.pruning.decision import KEPT_TOKENS, KEPT_TOKENS_MEAN
from qpriv.result import Result


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """One answered question, as processes exchange it and ``predictions.jsonl`` stores it.

    Args:
        key: ``dataset/split/qid``.
        group: The image or patient, prefixed by the data set.
        question_type: Kind of the question, or empty.
        answer_type: ``OPEN`` or ``CLOSED``.
        prediction: The answer.
        score: Its score in [0, 1]; None without a gold answer.
        loss: Mean cross-entropy of the gold answer's tokens in nats; None without a gold answer.
        kept: Visual tokens that cross at the first cut.
        kept_mean: Visual tokens that a decoder layer processes, averaged over the layers.
        tokens: All tokens that cross at the first cut: visual, prompt and gold answer.
        tokens_behind: All tokens that cross at each later cut.
        client: Index of the client that answered.
    """

    key: str
    group: str
    question_type: str
    answer_type: AnswerType = AnswerType.OPEN
    prediction: str
    score: float | None
    loss: float | None
    kept: int
    kept_mean: float = 0.0
    tokens: int = 0
    tokens_behind: tuple[int, ...] = ()
    client: int = 0

    @property
    def dataset(self) -> str:
        """Return ``dataset/split``."""
        return self.key.rsplit("/", 1)[0]


def answer_batch(
    model: VisionLanguageModel,
    inputs: PreparedInputs,
    cuts: Sequence[int],
    rule: AnswerRule,
    max_new_tokens: int,
    client: int = 0,
) -> list[Answered]:
    """Answer a batch; samples with a gold answer also get a score and a loss.

    Args:
        model: The model.
        inputs: The prepared batch.
        cuts: Decoder layers before which tokens cross, or would cross.
        rule: Rule that scores an answer.
        max_new_tokens: Longest answer in tokens.
        client: Index of the client that answers.
    """
    said = model.answer(inputs, max_new_tokens=max_new_tokens)
    scores = model.answer_log_probs(inputs)
    crossed = [inputs.answered.at(cut).only(scores.kept) for cut in cuts]
    rows = zip(
        inputs.batch.samples,
        said,
        scores.mean_log_prob.tolist(),
        crossed[0].visual_counts.tolist(),
        inputs.mean_visual_counts(model.num_layers).tolist(),
        zip(*(each.attention_mask.sum(dim=1).tolist() for each in crossed), strict=True),
        strict=True,
    )
    return [
        Answered(
            key=sample.key,
            group=f"{sample.dataset}/{sample.group_id}",
            question_type=str(sample.meta.get("question_type", "")),
            answer_type=sample.answer_type,
            prediction=prediction,
            score=score_sample(prediction, sample, rule) if sample.answer else None,
            loss=-log_prob if sample.answer else None,
            kept=kept,
            kept_mean=kept_mean,
            tokens=tokens[0],
            tokens_behind=tokens[1:],
            client=client,
        )
        for sample, prediction, log_prob, kept, kept_mean, tokens in rows
    ]


def distinct(rows: Iterable[Answered]) -> list[Answered]:
    """Return the rows sorted by key, each key once.

    Metrics then do not depend on the number of processes, which deliver rows in any order.
    """
    return [row for _, row in sorted({row.key: row for row in rows}.items())]


def figures(rows: Sequence[Answered], stage: str, rule: AnswerRule, prompt: str) -> list[Result]:
    """Return accuracy (total, per answer type, question type and client), kept tokens and loss.

    ``kept_tokens`` counts visual tokens at the first cut, which determine privacy and bytes.
    ``kept_tokens_mean`` is the mean over layers, which determines computing time. If
    normalisation empties some predictions, their share is a result too.

    ``accuracy`` and ``accuracy_<rule>`` have the same value. The first name serves to compare
    policies; the second serves to compare with papers, because accuracies under different rules
    are not comparable. Both results store the prompt.

    Args:
        rows: The answered questions.
        stage: ``val`` or ``test``.
        rule: Rule that scored the answers.
        prompt: Prompt template of the questions.
    """
    scored = [row for row in rows if row.score is not None]
    parts = {ACCURACY.name: scored, f"accuracy_{rule}": scored}
    parts |= {
        f"accuracy_{rule}/{kind.lower()}": [row for row in scored if row.answer_type is kind]
        for kind in AnswerType
    }
    parts |= {
        f"accuracy/{kind}": [row for row in scored if row.question_type == kind]
        for kind in sorted({row.question_type for row in scored} - {""})
    }
    clients = sorted({row.client for row in scored})
    for client in clients if len(clients) > 1 else ():
        parts[f"client{client}/accuracy"] = [row for row in scored if row.client == client]
    results = [
        replace(_mean(name, part, [row.score for row in part]), prompt=prompt)
        for name, part in parts.items()
        if part or name == ACCURACY.name
    ]
    known = [row for row in rows if row.loss is not None]
    results.append(_mean(f"{stage}/loss", known, [row.loss for row in known], unit="nats"))
    if any(empty := [says_nothing(row.prediction) for row in scored]):
        share = _mean(EMPTY.name, scored, [float(one) for one in empty])
        results.append(replace(share, note=f"{sum(empty)} predictions, empty once normalised"))
    for name, kept in (
        (KEPT_TOKENS.name, [row.kept for row in rows]),
        (KEPT_TOKENS_MEAN.name, [row.kept_mean for row in rows]),
    ):
        results.append(_mean(name, rows, kept, unit=KEPT_TOKENS.unit))
    return results


def write_predictions(path: Path, rows: Sequence[Answered]) -> None:
    """Write one JSON line per answered question."""
    lines = [msgspec.json.encode(row) for row in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")


def _mean(
    name: str, rows: Sequence[Answered], values: Sequence[float | None], unit: str = ""
) -> Result:
    groups = [row.group for row in rows]
    dataset = " + ".join(sorted({row.dataset for row in rows}))
    if not rows:
        return Result(name=name, value=None, n=0, unit=unit, status="not applicable")
    numbers = np.asarray(values, dtype=np.float64)
    found = mean_result(
        name, numbers, {IMAGE_GROUP: groups}, unit=unit, bounds=None if unit else RATE
    )
    return replace(found, dataset=dataset)
