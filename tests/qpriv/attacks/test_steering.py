"""Asking, searching and counting what has crossed, each against a plain loop."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from qpriv.attacks.question_search import MOST_WORDS, Asker, Search, edited, leak_of
from qpriv.attacks.steering import ATTACKS, asking, converse, steering_report
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.pruning import DynamicPruning, DynamicThresholdPredictor, PredictorConfig
from qpriv.split import Channel
from tests.tiny_models import QUESTIONS, random_model, random_samples
from tests.toy_policies import LastTokenAttention

WORDS = ("red", "blue", "cat", "dog", "person", "face", "circle", "square", "teal")


@pytest.fixture(scope="module")
def model() -> VisionLanguageModel:
    return random_model()


@pytest.fixture(scope="module")
def dynamic(model: VisionLanguageModel) -> DynamicPruning:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        predictor = DynamicThresholdPredictor(PredictorConfig.scaled(model.feature_sizes))
        predictor.ratio_predictor.layers[-1].weight.data *= 40  # so that questions matter
    return DynamicPruning(predictor)


def test_asking_one_question_about_all_images_decides_as_the_client_does(model, dynamic) -> None:
    samples = random_samples(5)
    for policy in (dynamic, LastTokenAttention()):
        asker = Asker(model, policy, model.encode, samples, cut=4, batch_size=3)
        for question, _ in QUESTIONS[:3]:
            crossed = converse(
                model, policy, model.encode, Channel.supposed((4,)), asking(samples, [question])
            )
            assert asker(question).tolist() == crossed.entering.tolist()
            assert crossed.questions == ((question,),) * 5
        assert asker.questions == 3


def test_what_has_crossed_after_several_questions_is_their_union(model, dynamic) -> None:
    samples, channel = random_samples(3), Channel.supposed((4,))
    held = [[replace(own, question=q) for q, _ in QUESTIONS[: row + 1]]
            for row, own in enumerate(samples)]  # fmt: skip
    whole = converse(model, dynamic, model.encode, channel, held, batch_size=2)
    for row, own in enumerate(held):
        parts = [converse(model, dynamic, model.encode, channel, [[one]]) for one in own]
        union = torch.stack([part.kept[0] for part in parts]).any(dim=0)
        assert whole.kept[row].tolist() == union.tolist()
        assert whole.sizes[row] == sum(int(part.sizes[0]) for part in parts)
    assert whole.kept[2].sum() > whole.kept[0].sum()


class Toy:
    """Four patches, each of which crosses where its word is asked; one crosses always."""

    def __init__(self) -> None:
        self.questions, self.asked = 0, list[str]()

    def __call__(self, question: str) -> Tensor:
        self.questions += 1
        self.asked.append(question)
        words = question.split()
        row = [True, "teal" in words, "face" in words and "teal" not in words, "dog" in words]
        return torch.tensor([row])


def searched(**given: object) -> tuple[Toy, object]:
    toy = Toy()
    library = ["is there a cat ?", "is there a teal cat ?", "what is red ?", "how many ?"]
    search = Search(toy, lambda mask: float(mask.float().mean()), library, WORDS, **given)
    return toy, search.run(2, np.random.default_rng(0))


def test_a_search_finds_the_worst_question_a_worse_string_and_their_best_companion() -> None:
    toy, found = searched()
    assert found.plain == "is there a teal cat ?"
    assert {"teal", "dog"} <= set(found.worst.split())  # no question of the library says dog
    assert found.adversarial[0] == found.worst
    together = torch.stack([toy(question) for question in found.adversarial]).any(dim=0)
    assert together.all()  # no string alone lets the third patch cross as well
    assert found.questions == toy.questions - 2
    assert searched()[1] == found


def test_a_search_whose_time_is_up_still_tries_the_library() -> None:
    toy, found = searched(over=lambda: True)
    assert found.worst == found.plain == "is there a teal cat ?"
    assert len(set(toy.asked)) == 4


def test_edits_stay_questions_of_known_words() -> None:
    rng, question = np.random.default_rng(0), "what is red ?"
    seen = set()
    for _ in range(300):
        question = edited(question, WORDS, rng)
        parts = question.split()
        assert 1 <= len(parts) <= MOST_WORDS
        assert set(parts) <= {*WORDS, "what", "is", "red", "?"}
        seen.add(question)
    assert len(seen) > 200


def test_without_a_box_a_search_makes_all_tokens_cross(model) -> None:
    bare = [replace(sample, sensitive_boxes=()) for sample in random_samples(2)]
    mask = torch.zeros(2, model.num_patches, dtype=torch.bool)
    mask[:, : model.num_patches // 4] = True
    assert leak_of(model, bare)(mask) == pytest.approx(0.25)


def test_every_figure_is_declared_and_the_gain_is_paired(model, dynamic) -> None:
    samples, channel = random_samples(6), Channel.supposed((4,))
    held = {"own": [[one] for one in samples], "worst": asking(samples, [QUESTIONS[3][0]])}
    crossed = {
        asked: converse(model, dynamic, model.encode, channel, own) for asked, own in held.items()
    }
    report = {result.name: result for result in steering_report(model, samples, crossed)}
    declared = {own.name for own in ATTACKS[0].quantities}
    assert report.keys() <= declared
    kept = {asked: report[f"{asked}_sensitive_tokens_kept"] for asked in held}
    assert report["worst_gain"].value == pytest.approx(kept["worst"].value - kept["own"].value)
    assert all(result.n == 6 and result.ci is not None for result in report.values())
