"""The prompt is one value of the configuration, the same to the byte wherever a question is asked."""

import json

import pytest
import yaml

from cli.main import main
from qpriv.models.llava.preprocessing import Preprocessor

from .conftest import QUICK, SMALL

PROMPT = "Look:\n<image>\n\tQ:  {question} \n Answer :"


@pytest.mark.slow
def test_training_evaluation_and_attacks_ask_by_the_configured_prompt(
    here, tmp_path, monkeypatch, capsys
):
    asked = []
    tokens = Preprocessor._tokens

    def spy(self, text, sample):
        asked.append((text, sample))
        return tokens(self, text, sample)

    monkeypatch.setattr(Preprocessor, "_tokens", spy)
    settings = tmp_path / "prompt.yaml"
    settings.write_text(yaml.safe_dump({"model": {"init_args": {"prompt": PROMPT}}}))
    main(
        [
            "fit",
            "--config=tiny/vqa.yaml",
            "--config=study/probes/tiny.yaml",
            f"--config={settings}",
            *SMALL["VQAModule"],
            *QUICK,
            f"--trainer.default_root_dir={tmp_path / 'run'}",
            "--run.wandb=off",
        ]
    )
    keys = {sample.key.split("/")[1] for _, sample in asked}
    assert {"members", "nonmembers", "val"} <= keys  # trained on, attacked, and evaluated
    for text, sample in asked:
        prompt = PROMPT.replace("{question}", sample.question)
        assert text in (prompt, f"{prompt} {sample.answer}")

    results = [json.loads(line) for line in (tmp_path / "run/results.jsonl").open()]
    scores = {row["name"]: row for row in results if "accuracy" in row["name"]}
    assert {row["prompt"] for row in scores.values() if "attack" not in row["name"]} == {PROMPT}
    assert scores["accuracy"]["value"] == scores["accuracy_exact"]["value"]
    assert repr(PROMPT) in capsys.readouterr().err
    saved = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert saved["model"]["init_args"]["prompt"] == PROMPT
