"""Sizes tell what the policy made them depend on, and nothing else."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from qpriv.attacks.prediction import fit_predict, majority, prediction_report
from qpriv.attacks.side_channel import (
    SideChannel,
    Target,
    places_in,
    read_side_channel,
    side_channel_report,
    threat_model,
    watch,
)
from qpriv.datasets.sample import VQASample
from qpriv.models.features import VisualFeatures
from qpriv.pruning.baselines import RandomPruning
from qpriv.pruning.decision import PruningDecision
from qpriv.pruning.label import PolicyLabel
from qpriv.pruning.policy import NoPruning, PruningPolicy
from qpriv.result import Result
from qpriv.split import Channel
from tests.tiny_models import HIDDEN_SIZE, NUM_PATCHES, random_model, random_samples


class Telltale(PruningPolicy):
    """Keeps a number of patches that only the question's length decides."""

    @property
    def name(self) -> PolicyLabel:
        return PolicyLabel("telltale")

    def decide(self, features: VisualFeatures, samples: Sequence[VQASample]) -> PruningDecision:
        counts = [8 + len(sample.question) for sample in samples]
        kept = tuple(torch.arange(count) for count in counts)
        return PruningDecision(kept, NUM_PATCHES, torch.zeros(len(samples)))


@pytest.fixture(scope="module")
def model():
    return random_model()


def drawn(count: int, seed: int) -> list[VQASample]:
    """Return samples of four question types, whose face is there by the toss of a coin."""
    coin = np.random.default_rng(seed).random(count) < 0.5
    return [
        replace(
            sample,
            group_id=f"{seed}-{number}",
            sensitive_boxes=((0, 0, 8, 8),) if coin[number] else (),
            meta={"question_type": sample.question},
        )
        for number, sample in enumerate(random_samples(count, seed=seed))
    ]


AUXILIARY, PRIVATE = drawn(60, 1), drawn(40, 2)


@pytest.fixture(scope="module")
def sizes(model) -> dict[str, tuple[SideChannel, SideChannel]]:
    """Return what crosses for both lists, by policy; encoding them is what takes time here."""
    return {
        policy.label + (f"/{bucket}" if bucket > 1 else ""): tuple(
            watch(model, policy, samples, Channel((4,), bucket=bucket))
            for samples in (AUXILIARY, PRIVATE)
        )
        for policy, bucket in ((Telltale(), 1), (NoPruning(), 1), (Telltale(), 1024))
    }


def report(
    channels: tuple[SideChannel, SideChannel],
    targets: Sequence[Target] = ("question_type",),
) -> dict[str, Result]:
    known, asked = channels
    figures = side_channel_report(AUXILIARY, known, PRIVATE, asked, targets=targets, seed=3)
    return {figure.name: figure for figure in figures}


def test_counts_that_follow_the_question_give_it_away(sizes) -> None:
    found = report(sizes["telltale"], ("question_type", "sensitive"))
    figure = found["question_type_from_kept_count_accuracy"]
    assert figure.value == 1.0 and figure.n == 40
    assert found["question_type_from_kept_count_gain"].ci[0] > 0.4
    assert figure.attack["chance"] == 0.25
    # the coin is in no size: its interval holds nothing to gain
    for view in ("kept_count", "kept_places"):
        low, high = found[f"sensitive_from_{view}_gain"].ci
        assert low <= 0 <= high


def test_sizes_of_a_policy_that_looks_at_nothing_tell_what_the_text_tells(sizes) -> None:
    found = report(sizes["off"])
    assert found["question_type_from_kept_count_gain"].value == 0
    assert found["question_type_from_kept_count_balanced_accuracy"].value == 0.25
    before, after = (
        found[f"question_type_from_{view}_accuracy"].value
        for view in ("text_length", "message_size")
    )
    assert before == after > 0.25


def test_buckets_hide_sizes_from_a_bystander_and_not_from_the_server(sizes) -> None:
    found = report(sizes["telltale/1024"])
    assert found["question_type_from_message_size_gain"].value == 0
    assert found["question_type_from_token_counts_accuracy"].value == 1.0
    assert threat_model("message_size", 1024).settings()["attacker"] == "outsider"


def test_places_are_read_off_positions_with_gaps(model) -> None:
    samples = random_samples(5)
    batch = model.preprocessor(samples)
    features = model.encode(batch)
    decision = RandomPruning(0.5).decide(features, samples)
    for positions, there in (("original", True), ("compact", False)):
        with Channel((2,)).record(model) as transcript, torch.no_grad():
            model(batch, features, decision, positions=positions)
        places = places_in(transcript, 2)
        channel = read_side_channel(transcript, 2, NUM_PATCHES)
        assert channel.kept.tolist() == decision.counts.tolist()
        assert (channel.places is not None) == (places is not None) == there
        if channel.places is not None:
            assert torch.equal(channel.places, decision.mask)
        else:
            assert "kept_places" not in channel.views
            with pytest.raises(ValueError, match="does not tell"):
                channel.seen("kept_places")


def test_sizes_are_those_of_the_sequences(model) -> None:
    samples = random_samples(6)
    batch = model.preprocessor(samples)
    channel = watch(model, Telltale(), samples, Channel((4,), bucket=16), batch_size=4)
    decision = Telltale().decide(model.encode(batch), samples)
    lengths = model.sequences(batch, decision).attention_mask.sum(dim=1)
    assert (channel.text + channel.kept).tolist() == lengths.tolist()
    assert channel.seen("message_size")[:, 0].tolist() == [
        float(-(-int(length) // 16) * 16) * HIDDEN_SIZE * 4 for length in lengths
    ]


def test_a_transcript_of_bytes_alone_is_refused(model) -> None:
    samples = random_samples(2)
    with Channel((1,)).record(model, store=False) as transcript, torch.no_grad():
        model(model.preprocessor(samples))
    with pytest.raises(ValueError, match="store=True"):
        read_side_channel(transcript, 1, NUM_PATCHES)


def test_holes_tell_what_is_in_them() -> None:
    generator = np.random.default_rng(0)

    def holed(samples: list[VQASample]) -> SideChannel:
        mask = torch.from_numpy(generator.random((len(samples), 16)) < 0.5)
        mask[:, 5] = torch.tensor([not sample.sensitive_boxes for sample in samples])
        kept = torch.full((len(samples),), 8)  # as if every row kept as many
        return SideChannel(torch.full((len(samples),), 9), kept, kept + 9, mask)

    auxiliary, private = drawn(200, 3), drawn(100, 4)
    known, asked = holed(auxiliary), holed(private)
    found = {
        r.name: r
        for r in side_channel_report(auxiliary, known, private, asked, targets=["sensitive"])
    }
    assert found["sensitive_from_kept_places_accuracy"].value > 0.9
    assert found["sensitive_from_token_counts_gain"].value == 0


def test_what_a_data_set_does_not_know_gets_no_figure(sizes) -> None:
    unknown = [replace(sample, sensitive_boxes=None, meta={}) for sample in PRIVATE]
    known, asked = sizes["telltale"]
    figures = side_channel_report(
        AUXILIARY, known, unknown, asked, targets=["sensitive", "question_type"]
    )
    assert len(figures) == 10
    assert {(figure.status, figure.value) for figure in figures} == {("not applicable", None)}


def test_too_few_samples_get_no_figure(sizes) -> None:
    known, asked = sizes["telltale"]
    few = SideChannel(known.text[:20], known.kept[:20], known.sizes[:20], None)
    figures = side_channel_report(AUXILIARY[:20], few, PRIVATE, asked, targets=["answer"])
    assert all("20 samples" in figure.note and figure.value is None for figure in figures)


def test_attack_is_repeatable(sizes) -> None:
    runs = [report(sizes["telltale"], ("answer",)) for _ in range(2)]
    assert runs[0] == runs[1] and len(runs[0]) == 20


class TestPrediction:
    def test_report_is_what_a_loop_counts(self) -> None:
        generator = np.random.default_rng(0)
        known = list(generator.choice(["a", "b", "c"], 90, p=[0.6, 0.3, 0.1]))
        truth = list(generator.choice(["a", "b", "c"], 50, p=[0.6, 0.3, 0.1]))
        groups = [str(n) for n in range(50)]
        inputs, asked = generator.normal(size=(90, 2)), generator.normal(size=(50, 2))
        told = fit_predict(inputs, known, [str(n) for n in range(90)], asked)
        found = {r.name: r.value for r in prediction_report("x", told, truth, known, groups)}
        right = sum(t == s for t, s in zip(truth, told.likeliest, strict=True)) / 50
        usual = sum(t == majority(known) for t in truth) / 50
        recalls = []
        for name in sorted(set(truth)):
            own = [t == b for t, b in zip(truth, told.balanced, strict=True) if t == name]
            recalls.append(sum(own) / len(own))
        assert found["x_accuracy"] == pytest.approx(right)
        assert found["x_majority"] == pytest.approx(usual)
        assert found["x_gain"] == pytest.approx(right - usual)
        assert found["x_balanced_accuracy"] == pytest.approx(sum(recalls) / len(recalls))

    def test_a_rare_class_shows_in_the_balanced_figure_first(self) -> None:
        generator = np.random.default_rng(1)
        truth = ["yes" if draw else "no" for draw in generator.random(800) < 0.9]
        inputs = np.asarray([[float(t == "yes")] for t in truth]) + generator.normal(size=(800, 1))
        groups = [str(n) for n in range(800)]
        told = fit_predict(inputs[:400], truth[:400], groups[:400], inputs[400:])
        report = prediction_report("x", told, truth[400:], truth[:400], groups[400:])
        found = {figure.name: figure for figure in report}
        assert found["x_balanced_accuracy"].ci[0] > 0.5
        assert abs(found["x_gain"].value) < 0.05

    def test_no_classifier_is_better_than_noise_lets_it_be(self) -> None:
        generator = np.random.default_rng(2)
        labels = list(generator.choice(["a", "b"], 300, p=[0.7, 0.3]))
        noise = generator.normal(size=(300, 20))
        told = fit_predict(noise, labels, [str(n) for n in range(300)], noise)
        assert told.classifier == "majority"
        assert set(told.likeliest) == {"a"}

    def test_groups_are_not_split_in_the_choice(self) -> None:
        # three rows an image, alike and of one class: only a split image makes the forest look good
        generator = np.random.default_rng(3)
        inputs = np.repeat(generator.normal(size=(60, 5)), 3, axis=0)
        labels = list(np.repeat(generator.choice(["a", "b"], 60), 3))
        together = fit_predict(inputs, labels, list(np.repeat(np.arange(60), 3)), inputs)
        apart = fit_predict(inputs, labels, list(range(180)), inputs)
        assert (together.classifier, apart.classifier) == ("majority", "forest")
