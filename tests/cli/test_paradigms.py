"""Every shipped paradigm is fit as typed, and what is printed at its end loads what was trained."""

import pytest
import torch
import yaml

from cli.main import main
from cli.train import CONFIGS
from qpriv.paradigms.split import SERVER, client_name
from qpriv.result import read_results

from .conftest import QUICK, SMALL

NAMES = sorted(path.stem for path in (CONFIGS / "paradigms").glob("*.yaml"))


def test_a_paradigm_and_its_cuts_are_two_options(capsys):
    with pytest.raises(SystemExit):
        words = ["--model.paradigm", "UShapedSplit", "--model.paradigm.cuts", "[2,6]"]
        main(["fit", "--model=VQAModule", *words, "--print_config"])
    paradigm = yaml.safe_load(capsys.readouterr().out)["model"]["init_args"]["paradigm"]
    assert paradigm["class_path"].endswith(".UShapedSplit")
    assert paradigm["init_args"]["cuts"] == [2, 6]


@pytest.mark.parametrize("name", NAMES)
def test_a_paradigm_is_fit_and_its_adapters_load_without_qpriv(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = [*QUICK, *SMALL["VQAModule"], "--run.wandb=off", "--run.tensorboard=false"]
    main(["fit", f"--config=paradigms/{name}.yaml", *small, "--trainer.default_root_dir=run"])
    results = {result.name: result for result in read_results(tmp_path / "run/results.jsonl")}
    settings = yaml.safe_load((CONFIGS / "paradigms" / f"{name}.yaml").read_text())
    paradigm = settings["model"]["init_args"]["paradigm"]
    assert results["accuracy"].paradigm == name
    assert ("bytes_padding" in results) is ("bucket" in paradigm["init_args"])

    told = capsys.readouterr().out.partition("loads without qpriv")[2]
    lines = [line.strip() for line in told.splitlines()[1:] if line.startswith("  ")]
    loaded: dict = {}
    exec("\n".join(lines), loaded)
    model = loaded["model"]
    names = ["default"] if name == "federated" else [SERVER, client_name(0)]
    assert list(model.base_model.active_adapters) == names
    stored = torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)["state_dict"]
    own = {f"model.llava.{key}": value for key, value in model.state_dict().items()}
    trained = {key: value for key, value in stored.items() if key.split(".")[-2] in names}
    assert len(trained) == 2 * 7 * 8  # every projection of every layer has its pair
    assert all(torch.equal(own[key], value) for key, value in trained.items())
