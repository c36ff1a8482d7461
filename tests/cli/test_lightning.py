"""Every option of Lightning's trainer works, or is refused in a line that names what does it."""

import inspect
import re
from pathlib import Path

import lightning as L
import pytest
from lightning.pytorch.callbacks import LearningRateFinder, StochasticWeightAveraging
from lightning.pytorch.tuner import Tuner
from torch.optim.optimizer import register_optimizer_step_post_hook

from cli.main import main
from datamodules import FaceScenes
from datamodules.fake_documents import FakeDocuments
from lightning_modules import SensitivityTeacher, VQAModule
from lightning_modules.document_vqa import DocumentVQAModule
from qpriv.errors import ConfigError
from qpriv.models.llava.vision_language import VisionLanguageModel

from .conftest import QUICK, SMALL

FIT = ["fit", "--config=tiny/vqa.yaml", *SMALL["VQAModule"], *QUICK, "--run.wandb=off",
       "--run.tensorboard=false", "--trainer.default_root_dir=run"]  # fmt: skip
DOCUMENTED = Path(__file__).parents[2] / "docs" / "lightning.md"

REFUSED = {
    "accumulate_grad_batches=2": "--model.micro_batch_size",
    "gradient_clip_val=0.5": "--model.clip",
    "gradient_clip_val=0": "--model.clip",
    "gradient_clip_algorithm=value": "--model.clip",
    "overfit_batches=1": "--data.max_train",
    "overfit_batches=0.5": "--data.max_train",
    "limit_train_batches=0": "qpriv validate",
    "barebones=true": "--trainer.profiler",
    "model_registry=somewhere": "upload the exported folder",
    "strategy=ddp_fork": "ddp_spawn",
    "callbacks=BatchSizeFinder": "Tuner.scale_batch_size",
    "callbacks=LearningRateFinder": "Tuner.lr_find",
    "callbacks=BackboneFinetuning": "leave it out",
    "callbacks=ModelPruning --trainer.callbacks.pruning_fn=l1_unstructured": "--model.policy",
    "callbacks=EMAWeightAveraging": "frozen weights",
    "callbacks=StochasticWeightAveraging --trainer.callbacks.swa_lrs=0.01": "leave it out",
    "callbacks=GradientAccumulationScheduler --trainer.callbacks.scheduling={0: 2}": "batch_size",
}
TOGETHER = [
    ("accelerator=cpu", "devices=1", "num_nodes=1", "precision=32", "default_root_dir=run",
     "plugins=[]", "use_distributed_sampler=true", "logger=true", "benchmark=true", "max_epochs=1",
     "min_epochs=1", "min_steps=1", "max_time=00:01:00:00", "log_every_n_steps=1",
     "limit_train_batches=1", "limit_val_batches=1", "limit_test_batches=1",
     "limit_predict_batches=1"),
    ("num_sanity_val_steps=1", "val_check_interval=1", "enable_progress_bar=true",
     "enable_model_summary=true", "deterministic=true"),
    ("inference_mode=false", "sync_batchnorm=true", "profiler=simple", "detect_anomaly=true",
     "reload_dataloaders_every_n_epochs=1", "enable_autolog_hparams=false",
     "val_check_interval=0.5"),
    ("logger=false",), ("limit_val_batches=0",), ("check_val_every_n_epoch=2",),
    ("enable_checkpointing=false",), ("fast_dev_run=1",), ("max_steps=2",),
]  # fmt: skip
"""What works: options that do not touch each other are shown by one fit."""
WORKING = {option for options in TOGETHER for option in options}


def test_every_option_of_the_trainer_is_judged_and_documented():
    options = inspect.signature(L.Trainer.__init__).parameters.keys() - {"self"}
    assert options == {each.partition("=")[0] for each in (*REFUSED, *WORKING)}
    rows = re.findall(r"^\| (.+?) \|", DOCUMENTED.read_text(), re.MULTILINE)
    assert options <= set(re.findall(r"`(\w+)`", " ".join(rows)))


@pytest.mark.parametrize("option", REFUSED)
def test_what_would_do_nothing_is_refused_before_weights_load(option, here, capsys, monkeypatch):
    monkeypatch.setattr(VisionLanguageModel, "from_pretrained", lambda *_, **__: pytest.fail())
    with pytest.raises(SystemExit) as leaving:
        main([*FIT, *f"--trainer.{option}".replace(" --", "\n--").splitlines()])
    error = capsys.readouterr().err.partition("qpriv: error: ")[2]
    assert leaving.value.code == 2
    assert REFUSED[option] in error and len(error.splitlines()) == 1
    assert not (here / "run").exists()


@pytest.mark.parametrize("module", [DocumentVQAModule, SensitivityTeacher])
def test_modules_that_step_by_lightning_refuse_what_would_average_no_weights(module, tmp_path):
    with pytest.raises(ConfigError, match="StochasticWeightAveraging: it copies the module before"):
        fit_documents(module(), tmp_path, callbacks=[StochasticWeightAveraging(0.1)])


def test_modules_that_step_by_lightning_accumulate_and_clip(tmp_path):
    seen: list[float] = []

    def note(optimizer, *_):
        grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
        seen.append(max(float(each.abs().max()) for each in grads if each is not None))

    handle = register_optimizer_step_post_hook(note)
    clip = {"gradient_clip_val": 1e-4, "gradient_clip_algorithm": "value"}
    trainer = fit_documents(DocumentVQAModule(seed=3), tmp_path, accumulate_grad_batches=2, **clip)
    handle.remove()
    batches = len(trainer.train_dataloader)
    assert batches == 3 and trainer.global_step == 2
    assert seen == pytest.approx([1e-4] * 2)


def fit_documents(module, folder, **settings):
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=1, limit_val_batches=0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=folder, **settings,
    )  # fmt: skip
    data = FakeDocuments(num_base=4, num_canaries={1: 2}, num_eval=2, batch_size=2)
    trainer.fit(module, datamodule=data)
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize("options", TOGETHER, ids=lambda options: options[0])
def test_what_works_trains(options, here):
    main([*FIT, *(f"--trainer.{option}" for option in options)])
    run, alone = here / "run", options[0]
    assert run.exists() is (alone != "fast_dev_run=1")
    if run.exists():
        assert any((run / "adapter").iterdir())
        assert (run / "checkpoints").exists() is (alone != "enable_checkpointing=false")
        measured = alone not in {"limit_val_batches=0", "check_val_every_n_epoch=2", "max_steps=2"}
        assert (run / "results.jsonl").exists() is measured


def test_a_trial_run_leaves_nothing(here, capsys):
    before = set(here.rglob("*"))
    main([*FIT, "--trainer.fast_dev_run=1", "--model.feature_cache=null"])
    assert set(here.rglob("*")) == before
    assert "nothing of it is kept" in capsys.readouterr().out


def test_a_logger_without_its_package_is_told_in_a_line(here, capsys):
    with pytest.raises(SystemExit) as leaving:
        main([*FIT, "--trainer.logger=MLFlowLogger"])
    error = capsys.readouterr().err.partition("qpriv: error: ")[2]
    assert leaving.value.code == 2
    assert "pip install 'mlflow" in error and len(error.splitlines()) == 1


def test_the_tuner_finds_a_learning_rate_and_a_batch_size(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = VQAModule(rank=4, feature_cache=None)
    data = FaceScenes(num_train=8, num_memorised=4, num_eval=2, batch_size=8, num_auxiliary=8,
                      num_targets=4)  # fmt: skip
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        use_distributed_sampler=False,
        limit_val_batches=0,
    )
    found = Tuner(trainer).lr_find(
        module, datamodule=data, num_training=8, min_lr=1e-4, max_lr=1e-1
    )
    losses = found.results["loss"]
    assert len(losses) == len(found.results["lr"]) and all(loss > 0 for loss in losses)
    assert not any(isinstance(each, LearningRateFinder) for each in trainer.callbacks)
    size = Tuner(trainer).scale_batch_size(module, datamodule=data, max_trials=1, init_val=4)
    assert data.batch_size == size in {4, 8}
    module.learning_rate = 0.01
    trainer.fit(module, datamodule=data)
    assert trainer.optimizers[0].param_groups[0]["initial_lr"] == 0.01
