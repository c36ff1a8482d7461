"""Every shipped configuration of the embedded study is fit, tested and asked, as typed."""

import json

import pytest
import torch
import yaml

from cli.main import main
from cli.train import CONFIGS
from qpriv.result import read_results

from .conftest import QUICK, SMALL

STAGES = {"sensitivity_teacher", "threshold_teacher", "student"}
NAMES = sorted(path.stem for path in (CONFIGS / "tiny").glob("*.yaml"))


FITS = [
    path.relative_to(CONFIGS)
    for folder in ("tiny", "paradigms", "documents", "paper")
    for path in sorted((CONFIGS / folder).glob("*.yaml"))
    # of a study, and of one run of a document study: `fit` reads neither
    if path.name not in {"study.yaml", "run.yaml"}
]


def printed(config, capsys) -> str:
    with pytest.raises(SystemExit) as leaving:
        main(["fit", f"--config={config}", "--print_config"])
    assert not leaving.value.code
    return capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("config", FITS, ids=str)
def test_a_configuration_printed_with_all_defaults_is_the_same_again(config, tmp_path, capsys):
    whole = printed(config, capsys)
    (tmp_path / "whole.yaml").write_text(whole)
    assert printed(tmp_path / "whole.yaml", capsys) == whole
    given = yaml.safe_load((CONFIGS / config).read_text())
    read = yaml.safe_load(whole)
    assert read["trainer"]["max_epochs"] == given["trainer"]["max_epochs"]
    for part in ("model", "data"):
        arguments = given[part].get("init_args", {})
        assert {
            name: read[part]["init_args"][name] for name in arguments
        }.keys() == arguments.keys()


def only_run(folder, name):
    (run,) = folder.glob(f"runs/{name}-2*")
    return run


@pytest.mark.parametrize("name", sorted(STAGES))
def test_stage_was_fit(name, here):
    run = only_run(here, name)
    assert (run / "predictor" / "model.safetensors").is_file()
    assert (here / "runs" / "latest" / name).resolve() == run.resolve()
    assert read_results(run / "results.jsonl")
    saved = yaml.safe_load((run / "config.yaml").read_text())
    assert saved["model"]["init_args"]["backbone"] == "tiny"


@pytest.mark.parametrize(
    "name",
    [
        # the whole method in one; the others differ by a policy
        name if name == "vqa_dtp" else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(set(NAMES) - STAGES)
    ],
)
def test_fine_tune_is_fit_tested_and_attacked(name, here):
    config, small = f"--config=tiny/{name}.yaml", [*QUICK, *SMALL["VQAModule"], "--run.wandb=off"]
    probed = (
        "callbacks" in yaml.safe_load((CONFIGS / "tiny" / f"{name}.yaml").read_text())["trainer"]
    )
    short = ["--config=study/probes/tiny.yaml"] if probed else []
    main(["fit", config, *short, *small])
    run = only_run(here, name)
    results = {result.name: result for result in read_results(run / "results.jsonl")}
    assert results["accuracy"].n == 4
    if probed:
        assert results["attack/supervised_inversion/psnr"].policy == results["accuracy"].policy
        assert "sensitive_tokens_kept" in results
    for kind in ("best", "last"):
        stored = torch.load(run / "checkpoints" / f"{kind}.ckpt", weights_only=True)
        assert all(".lora_" in key for key in stored["state_dict"])
    assert (run / "adapter" / "adapter_model.safetensors").is_file()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("val/accuracy" in line for line in lines)
