"""Two processes (gloo) compute what one does: 33 questions count as 33, none twice, none lost."""

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from qpriv.datasets.sample import AnswerType
from qpriv.datasets.sampler import EpochSampler
from qpriv.metrics import (
    ANLS,
    AnswerScores,
    ClosedExactMatch,
    ClosedFirstWord,
    GQAAccuracy,
    LlavaMedClosed,
    OpenRecall,
    SlakeMatch,
    VQAAccuracy,
)
from tests.qpriv.metrics.test_answers import sample

TIMEOUT = 120
QUESTIONS = 33
WORDS = ["yes", "no", "right lung", "liver", "2"]
METRICS = {
    "official": VQAAccuracy,
    "okvqa": partial(VQAAccuracy, "okvqa"),
    "closed": ClosedExactMatch,
    "first word": ClosedFirstWord,
    "llava med": LlavaMedClosed,
    "open": OpenRecall,
    "gqa": GQAAccuracy,
    "slake": SlakeMatch,
    "anls": ANLS,
}


def questions():
    """Return predictions and samples; the only question of type "rare" is the last."""
    rows = []
    for number in range(QUESTIONS):
        gold, said = WORDS[number % 5], WORDS[number % 7 % 5]
        kind = AnswerType.CLOSED if gold in ("yes", "no") else AnswerType.OPEN
        asked = "rare" if number == QUESTIONS - 1 else "what"
        rows.append((said, sample(gold, kind, [gold] * 6 + ["other"] * 4, question_type=asked)))
    return rows


def computed(rows):
    """Return every metric's value and count over some of the questions."""
    found = {}
    for name, make in METRICS.items():
        metric = make()
        for said, one in rows:
            metric.update([said], [one.answers])
        value = metric.compute()
        found[name] = (value.item(), _total(metric.count))
    scores = AnswerScores("medical", ["what", "rare"])
    for said, one in rows:
        scores.update([said], [one])
    return found | {key: value.item() for key, value in scores.compute().items()}


def _total(count):
    total = count.clone()
    if dist.is_initialized():
        dist.all_reduce(total)
    return int(total)


def worker(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    order = EpochSampler(range(QUESTIONS), shuffle=False, rank=rank, world_size=2)
    torch.save(computed([questions()[index] for index in order]), Path(folder, f"{rank}.pt"))
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_score_as_one(tmp_path):
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=worker, args=(rank, str(tmp_path))) for rank in range(2)]
    try:
        for process in started:
            process.start()
        for process in started:
            process.join(TIMEOUT)
        assert [process.exitcode for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
    wanted = computed(questions())
    assert {count for _, count in (wanted[name] for name in METRICS)} == {QUESTIONS}
    for rank in range(2):
        assert torch.load(tmp_path / f"{rank}.pt", weights_only=True) == wanted
