"""What has crossed of an image is known in later epochs, resumed runs and other processes."""

from dataclasses import dataclass, replace
from pathlib import Path

import lightning as L
import pytest
import torch

from callbacks.probes.isolation import IsolationError, isolated
from cli.parties import PartyCLI
from lightning_modules import VQAModule
from qpriv.datasets.sample import VQASample
from qpriv.errors import CheckpointError, ConfigError
from qpriv.models.features import FeatureSizes
from qpriv.pruning import DynamicThresholdPredictor, FixedRatioPruning, PredictorConfig
from qpriv.pruning.image_ledger import ImageLedger
from tests.lightning_modules.test_vqa import module, trainer
from tests.tiny_data import Noise, NoiseVQA
from tests.tiny_models import QUESTION_WIDTH, SENSITIVITY_WIDTH, VISION_WIDTH

SIZES = FeatureSizes(VISION_WIDTH, VISION_WIDTH, QUESTION_WIDTH, SENSITIVITY_WIDTH)


class PairedVQA(NoiseVQA):
    """Two questions about each image, half of the split apart."""

    def __init__(self, split: str, size: int) -> None:
        super().__init__(split, size)
        half = size // 2
        self.samples = [paired(self.samples, number, half) for number in range(size)]


def paired(samples: list[VQASample], number: int, half: int) -> VQASample:
    first = samples[number % half]
    own = replace(samples[(number + number // half) % len(samples)], qid=str(number))
    return replace(own, image=first.image, image_id=first.image_id, group_id=first.group_id)


@dataclass(eq=False, repr=False, kw_only=True)
class Paired(Noise):
    source = PairedVQA
    size: int = 8

    def dataset(self, split: str) -> PairedVQA:
        return PairedVQA(split, self.size)


def policy(**settings: object) -> FixedRatioPruning:
    """Return a policy whose choice depends on the question."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        predictor = DynamicThresholdPredictor(PredictorConfig.scaled(SIZES))
    predictor.utility_scorer.query.weight.data *= 20
    return FixedRatioPruning(0.5, predictor=predictor.requires_grad_(False), **settings)


def ledger_of(vqa: VQAModule) -> ImageLedger:
    assert vqa.policy.ledger is not None
    return vqa.policy.ledger


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[VQAModule, L.Trainer, Path]:
    folder = tmp_path_factory.mktemp("fitted")
    vqa = module(folder, policy=policy(mask="first_question"))
    run = trainer(folder, max_epochs=2)
    run.fit(vqa, datamodule=Paired(seed=3))
    run.save_checkpoint(folder / "last.ckpt")
    return vqa, run, folder


def test_the_first_question_of_a_run_decides_in_all_its_epochs(fitted) -> None:
    vqa, run, _ = fitted
    ledger = ledger_of(vqa)
    samples = [*run.datamodule.read("train"), *run.datamodule.read("val")]
    assert len(ledger) == len({sample.image_key for sample in samples}) == 8
    asked = vqa.preprocessor(samples)
    decided = vqa.policy.decide(vqa.encode(asked), samples)
    alone = policy().decide(vqa.encode(asked), samples)
    for row, sample in enumerate(samples):
        assert tuple(decided.kept[row].tolist()) == ledger.crossed(sample.image_key)
    for one, other in ((0, 4), (8, 12)):
        assert torch.equal(decided.kept[one], decided.kept[other])
        assert not torch.equal(alone.kept[one], alone.kept[other])
    # of evaluation the order is known: the first question about an image is the first in the split
    assert torch.equal(decided.kept[12], alone.kept[8])


def test_a_checkpoint_hands_on_what_has_crossed(fitted, tmp_path: Path) -> None:
    vqa, _, folder = fitted
    known = ledger_of(vqa).get_extra_state()
    for stage, more in (("fit", {"max_epochs": 2}), ("validate", {})):
        later = module(folder, policy=policy(mask="first_question"))
        run = trainer(tmp_path, **more)
        getattr(run, stage)(later, datamodule=Paired(seed=3), ckpt_path=folder / "last.ckpt")
        assert ledger_of(later).get_extra_state() == known


def test_a_fit_does_not_go_on_without_knowing_what_has_crossed(fitted, tmp_path: Path) -> None:
    _, _, folder = fitted
    content = torch.load(folder / "last.ckpt", weights_only=False)
    del content["qpriv_image_ledger"]
    torch.save(content, tmp_path / "old.ckpt")
    later = module(folder, policy=policy(image_budget=40))
    data, run = Paired(seed=3), trainer(tmp_path, max_epochs=3)
    with pytest.raises(CheckpointError, match="what has crossed"):
        run.fit(later, datamodule=data, ckpt_path=tmp_path / "old.ckpt")
    # to be measured under another policy than in training is no mistake
    trainer(tmp_path).validate(later, datamodule=data, ckpt_path=tmp_path / "old.ckpt")
    assert len(ledger_of(later)) == 4


def test_an_attack_leaves_no_trace_in_a_ledger(fitted) -> None:
    vqa, _, _ = fitted
    known = ledger_of(vqa).get_extra_state()
    with isolated(vqa, seed=0, audit=True):
        ledger_of(vqa).set_extra_state({"another": 0b10})
    assert ledger_of(vqa).get_extra_state() == known


def test_the_audit_finds_a_trace_in_a_ledger(fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    vqa, _, _ = fitted
    ledger = ledger_of(vqa)
    known, restore = ledger.get_extra_state(), ImageLedger.set_extra_state
    monkeypatch.setattr(ImageLedger, "set_extra_state", lambda self, state: None)
    with pytest.raises(IsolationError, match="ledger"), isolated(vqa, seed=0, audit=True):
        restore(ledger, {})
    restore(ledger, known)


def test_what_cannot_fit_is_refused_before_weights_load(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="image_budget is 31"):
        module(tmp_path, policy=policy(image_budget=31))


def test_parties_of_processes_of_their_own_refuse_a_ledger(fitted) -> None:
    vqa, _, _ = fitted

    class Party:
        model, trainer = vqa, None

    with pytest.raises(ConfigError, match="snapshots hold no ledger"):
        PartyCLI.module_of_party(Party())  # type: ignore[arg-type]
