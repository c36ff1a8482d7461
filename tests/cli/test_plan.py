"""``qpriv plan`` as a user meets it: from a configuration of ``fit``, with nothing loaded."""

import json

import pytest

from cli.main import main
from qpriv.models.llava.vision_language import VisionLanguageModel


@pytest.fixture(autouse=True)
def no_weights(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a plan loads no weights")

    monkeypatch.setattr(VisionLanguageModel, "from_pretrained", refuse)


@pytest.mark.parametrize("config", ["vqa", "vqa_off", "vqa_fixed", "vqa_dtp"])
def test_shipped_configurations_are_planned(config, capsys):
    main(["plan", f"--config=tiny/{config}.yaml"])
    shown = capsys.readouterr().out
    for words in ("64 patches", "trained", "memory of a training step", "threat model"):
        assert words in shown


def test_the_full_scale_fine_tune_is_planned_from_its_file(capsys):
    main(["plan", "--config=paper/vqa.yaml"])
    shown = capsys.readouterr().out
    for words in ("llava-hf/llava-1.5-7b-hf", "79,953,920", "1,707,395", "576 patches"):
        assert words in shown


def test_a_released_model_is_planned_by_its_name_alone(capsys):
    main(
        [
            "plan",
            "--model=VQAModule",
            "--model.backbone=llava-hf/llava-1.5-7b-hf",
            "--model.dtype=float16",
            "--model.paradigm=UShapedSplit",
            "--model.policy=FixedRatioPruning",
            "--model.policy.ratio=0.5",
            "--model.policy.predictor=runs/not/trained/yet",
            "--model.micro_batch_size=2",
            "--data=SLAKE",
            "--text_tokens=64",
            "--json",
        ]
    )
    plan = json.loads(capsys.readouterr().out)
    assert plan["adapter"] == 79_953_920
    assert plan["cuts"] == [8, 24]
    assert [cost["kept"] for cost in plan["costs"]] == [576, 288]
    assert plan["costs"][1]["up"] + plan["costs"][1]["down"] == 11 * 2**20
    assert set(plan["memory"]) == {"client", "server"}


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["SplitLearning", "GaussianNoise"], "defence noise(0.1)"),
        (["SplitLearning", "NoDefence"], "split"),
        (["Centralized", "NoDefence"], "centralized"),
    ],
)
def test_a_plan_names_the_defence_that_a_run_would_have(words, shown, capsys):
    paradigm, defence = words
    given = [f"--model.paradigm={paradigm}", f"--model.defence={defence}"]
    main(["plan", "--config=tiny/vqa.yaml", *given])
    first = capsys.readouterr().out.splitlines()[0]
    assert shown in first and ("defence" in first) == (defence != "NoDefence")


def test_a_plan_refuses_a_defence_where_nothing_is_cut(capsys):
    given = ["--model.paradigm=Centralized", "--model.defence=GaussianNoise"]
    with pytest.raises(SystemExit):
        main(["plan", "--config=tiny/vqa.yaml", *given])
    assert "has no cut at which noise(0.1) could act" in capsys.readouterr().err
