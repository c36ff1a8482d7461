"""What a fit leaves: adapters that load in another process, without this package, and merge."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from cli.main import main
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.adapter import activate
from tests.tiny_models import random_samples

from .conftest import QUICK, SMALL

KINDS = {
    "whole": ["--trainer.max_epochs=3"],
    "bfloat16": ["--model.dtype=bfloat16"],
    "int8": ["--model.quantization=int8"],
    "u-shaped": ["--model.paradigm=UShapedSplit", "--model.paradigm.num_clients=2"],
}
INPUTS = ("input_ids", "attention_mask", "pixel_values")

ELSEWHERE = """
import json, sys, torch
inputs, told = torch.load("inputs.pt"), json.load(open("told.json"))
logits = {}
for name, lines in told.items():
    loaded = {}
    exec(lines, loaded)
    with torch.no_grad():
        logits[name] = loaded["model"].eval()(**inputs[name]).logits
ours = {"qpriv", "lightning", "lightning_modules", "callbacks", "datamodules", "cli"}
assert not ours & set(sys.modules), ours & set(sys.modules)
torch.save(logits, "logits.pt")
"""


def logits_here(run, kind, inputs) -> torch.Tensor:
    """Return the logits of the best checkpoint's weights in a model of this package."""
    stored = torch.load(run / "checkpoints/best.ckpt", weights_only=True)
    settings = stored["hyper_parameters"]
    model = VisionLanguageModel.from_pretrained(
        "tiny", dtype=settings["dtype"], quantization=settings["quantization"]
    )
    state = {name.removeprefix("model."): value for name, value in stored["state_dict"].items()}
    layers = {"server": range(2, 6), "client0": (0, 1, 6, 7), "client1": (0, 1, 6, 7)}
    names = list(layers) if kind == "u-shaped" else ["default"]
    for name in names:
        model.add_lora(settings["rank"], settings["alpha"], adapter=name, layers=layers.get(name))
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys
    activate(model, names[:2])
    with torch.no_grad():
        return model.eval().llava(**inputs).logits


@pytest.mark.slow
def test_the_printed_lines_give_the_logits_of_the_best_checkpoint(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    told, inputs, expected = {}, {}, {}
    batch = VisionLanguageModel.from_pretrained("tiny").preprocessor(random_samples(3))
    for kind, words in KINDS.items():
        small = [*SMALL["VQAModule"], "--run.wandb=off", "--run.tensorboard=false"]
        run = f"--trainer.default_root_dir={kind}"
        main(["fit", "--config=tiny/vqa.yaml", *QUICK, *small, *words, run])
        shown = capsys.readouterr().out.partition("loads without qpriv")[2].splitlines()[1:]
        told[kind] = "\n".join(line.strip() for line in shown if line.startswith("  "))
        inputs[kind] = {name: getattr(batch, name) for name in INPUTS}
        if kind == "bfloat16":
            inputs[kind]["pixel_values"] = batch.pixel_values.bfloat16()
        expected[kind] = logits_here(tmp_path / kind, kind, inputs[kind])
    (tmp_path / "told.json").write_text(json.dumps(told))
    torch.save(inputs, tmp_path / "inputs.pt")
    subprocess.run([sys.executable, "-c", ELSEWHERE], check=True)
    logits = torch.load(tmp_path / "logits.pt")
    for kind in KINDS:
        assert torch.equal(logits[kind], expected[kind]), kind


@pytest.mark.slow
def test_the_export_is_that_of_the_best_epoch_and_merges(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # a rate that ruins what the first epoch has learned
    words = ["--model.learning_rate=0.5", "--model.schedule=constant", "--run.wandb=off"]
    main(["fit", "--config=tiny/vqa.yaml", *SMALL["VQAModule"], *words,
          "--trainer.default_root_dir=run", "--trainer.enable_progress_bar=false"])  # fmt: skip
    weights = load_file(tmp_path / "run/adapter/adapter_model.safetensors")
    stored = torch.load(tmp_path / "run/checkpoints/best.ckpt", weights_only=True)["state_dict"]
    best = {name.replace(".default.", "."): value for name, value in stored.items()}
    assert {f"model.llava.{name}" for name in weights} == set(best)
    assert all(torch.equal(best[f"model.llava.{name}"], value) for name, value in weights.items())
    main(["merge", "run", "--out=merged"])
    assert "differ from those as trained by at most" in capsys.readouterr().out
    loaded = VisionLanguageModel.from_pretrained(
        "merged", *(VisionLanguageModel.from_pretrained("tiny").backbone.__dict__[part]
                    for part in ("text_encoder", "sensitivity_encoder")))  # fmt: skip
    assert loaded.answer(loaded.preprocessor(random_samples(1)))
