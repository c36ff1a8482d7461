"""A predictor, policy, defence or paradigm that cannot fit is refused before weights load."""

import json

import pytest

from cli.main import main
from qpriv.models.encoder_record import RECORD, read_encoders
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.models.registry import resolve_backbone
from qpriv.pruning.predictor import DynamicThresholdPredictor, PredictorConfig
from tests.tiny_models import random_backbone

VQA = ["fit", "--config=tiny/vqa.yaml"]
DYNAMIC = [*VQA, "--model.policy=DynamicPruning", "--model.policy.predictor=predictor"]
SPLIT = [*VQA, "--model.paradigm=SplitLearning"]
TOYS = "--model.defence=tests.qpriv.defences.toys"


def predictor_of(backbone: str, folder, *, recorded: bool = True) -> None:
    encoders, sizes = read_encoders(resolve_backbone(backbone))
    made = DynamicThresholdPredictor(PredictorConfig.scaled(sizes))
    made.encoders = encoders if recorded else None
    made.save_pretrained(folder)


def refused(words, capsys, monkeypatch) -> str:
    monkeypatch.setattr(VisionLanguageModel, "from_pretrained", lambda *_, **__: pytest.fail())
    with pytest.raises(SystemExit) as leaving:
        main(words)
    assert leaving.value.code == 2
    (line,) = capsys.readouterr().err.partition("qpriv: error: ")[2].splitlines()
    return line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*VQA, "--model.defence=GaussianNoise"], "Centralized has no cut at which noise(0.1)"),
        (
            [*VQA, "--model.paradigm=Federated", "--model.defence=GaussianNoise"],
            "Federated has no cut at which noise(0.1) could act",
        ),
        ([*SPLIT, "--model.defence=GaussianNoise", "--model.defence.std=-1"], "std is -1"),
        ([*SPLIT, f"{TOYS}.Mean"], "mean needs 2 clients"),
        ([*SPLIT, f"{TOYS}.Crowd"], "crowd needs 1000 samples of a client at a time"),
        ([*SPLIT, "--model.paradigm.cut=8"], "give 1, rising, from 1 to 7"),
        ([*VQA, "--model.policy=RandomPruning", "--model.policy.k_min=65"], "k_min is 65 with 64"),
        (
            [*SPLIT, "--model.paradigm.cut=1", "--model.policy=tests.toy_policies.LastTokenAttention",
             "--model.policy.stages=[{layer: 4}]"],
            "behind the cut 1",
        ),
    ],
)  # fmt: skip
def test_policy_defence_and_paradigm(words, told, here, capsys, monkeypatch):
    assert told in refused(words, capsys, monkeypatch)


def test_a_predictor_of_a_backbone_of_other_widths(here, capsys, monkeypatch):
    predictor_of(str(random_backbone()), here / "predictor")
    assert "the predictor takes" in refused(DYNAMIC, capsys, monkeypatch)


def test_a_predictor_of_a_backbone_of_the_same_widths(here, capsys, monkeypatch):
    predictor_of("tiny", here / "predictor")
    record = here / "predictor" / RECORD
    known = json.loads(record.read_text())
    assert known["backbone"] == "tiny"  # a predictor is passed on: no path of this machine
    other = known | {"backbone": "other/llava", "image": "0" * 32}
    record.write_text(json.dumps(other))
    line = refused(DYNAMIC, capsys, monkeypatch)
    assert "trained on the backbone other/llava, whose image encoder is not that of" in line


def test_a_record_that_cannot_be_read(here, capsys, monkeypatch):
    predictor_of("tiny", here / "predictor")
    (here / "predictor" / RECORD).write_text("{")
    assert "not a record of a backbone" in refused(DYNAMIC, capsys, monkeypatch)


class Reached(Exception):
    """The checks are passed, and weights would load."""


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "of an older version"])
def test_a_predictor_that_fits_is_taken(recorded, here, monkeypatch):
    predictor_of("tiny", here / "predictor", recorded=recorded)

    def reached(*_, **__):
        raise Reached

    monkeypatch.setattr(VisionLanguageModel, "from_pretrained", reached)
    with pytest.raises(Reached):
        main([*DYNAMIC, "--debug"])


def test_a_stage_refuses_the_predictor_of_another_backbone(here, capsys, monkeypatch):
    predictor_of("tiny", here / "predictor")
    record = here / "predictor" / RECORD
    record.write_text(json.dumps(json.loads(record.read_text()) | {"text": "0" * 32}))
    words = ["fit", "--config=tiny/student.yaml", "--model.predictor=predictor"]
    assert "whose text encoder is not that of" in refused(words, capsys, monkeypatch)
