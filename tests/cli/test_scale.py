"""Configurations of several devices are laid over a fit; what cannot be attacked there is refused."""

import lightning as L
import pytest
import yaml
from lightning.pytorch.strategies import FSDPStrategy

from callbacks import SensitivityProbe
from cli.main import main
from cli.training import CONFIGS, refuse_forked
from qpriv.errors import ConfigError

SCALE = sorted(path.stem for path in (CONFIGS / "scale").glob("*.yaml"))


@pytest.mark.parametrize("name", SCALE)
def test_the_configuration_is_laid_over_a_fit_and_round_trips(name, tmp_path, capsys):
    def printed(*configs: object) -> str:
        with pytest.raises(SystemExit) as leaving:
            main(["fit", *(f"--config={config}" for config in configs), "--print_config"])
        assert not leaving.value.code
        return capsys.readouterr().out

    whole = printed("tiny/vqa_off.yaml", f"scale/{name}.yaml")
    (tmp_path / "whole.yaml").write_text(whole)
    assert printed(tmp_path / "whole.yaml") == whole
    given = yaml.safe_load((CONFIGS / "scale" / f"{name}.yaml").read_text())["trainer"]
    read = yaml.safe_load(whole)
    assert read["model"]["init_args"]["learning_rate"] == 2e-3
    for key in given.keys() - {"strategy"}:
        assert read["trainer"][key] == given[key]


def test_a_probe_refuses_sharded_weights(monkeypatch):
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    sharded = FSDPStrategy.__new__(FSDPStrategy)  # it wants GPUs to be made whole
    monkeypatch.setattr(type(trainer), "strategy", sharded)
    with pytest.raises(ConfigError, match="FSDPStrategy gives no process a whole model"):
        SensitivityProbe().on_fit_start(trainer, L.LightningModule())


@pytest.mark.parametrize("strategy", ["ddp_notebook", "ddp_fork_find_unused_parameters_true"])
def test_a_strategy_that_copies_a_process_is_refused(strategy):
    with pytest.raises(ConfigError, match=f"{strategy} copies a process"):
        refuse_forked(strategy, "fit")
    for command in ("fit", "attack"):
        refuse_forked("ddp", command)
    refuse_forked("ddp_spawn", "fit")
    with pytest.raises(ConfigError, match="in processes that end"):
        refuse_forked("ddp_spawn", "attack")
