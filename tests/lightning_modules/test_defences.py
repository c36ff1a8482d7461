"""A defence in a fit: resumed bit for bit, named in every figure, refused where it cannot act."""

import lightning as L
import pytest
import torch
from safetensors.torch import load_file

from callbacks.runtime.inventory import Inventory
from qpriv.defences import GaussianNoise, NoDefence
from qpriv.errors import CheckpointError, ConfigError
from qpriv.paradigms import Centralized, SplitLearning, UShapedSplit
from qpriv.result import read_results
from tests.lightning_modules.test_vqa import equal, fit, module, trainer
from tests.qpriv.defences.toys import Mean, Narrow, Withdraw
from tests.tiny_data import Noise


class Both(Narrow):
    """Two trained sides and noise on what crosses."""

    def stages(self, site):
        stages, noise = super().stages(site), GaussianNoise(0.1)
        if site.direction == "up":
            encode = lambda rows, context: noise._noised(self.sender[0](rows), context)  # noqa: E731
            return type(stages)(encode=encode, decode=stages.decode)
        return stages


def defended(folder, paradigm=None, defence=None, **settings):
    paradigm = paradigm or UShapedSplit(num_clients=2)
    return module(folder, paradigm=paradigm, defence=defence or Both(), **settings)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    return fit(folder, Inventory(), model=defended(folder)), folder


def test_a_resumed_run_ends_as_the_uninterrupted_one(fitted, tmp_path):
    class Stop(L.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 4:
                trainer.save_checkpoint(tmp_path / "stopped.ckpt")
                raise KeyboardInterrupt

    with pytest.raises(SystemExit):
        fit(tmp_path, Stop(), model=defended(tmp_path))
    resumed = fit(tmp_path, ckpt_path=tmp_path / "stopped.ckpt", model=defended(tmp_path))
    whole, _ = fitted
    assert equal(resumed.trained(), whole.trained())
    assert sum(name.startswith("guards.") for name in whole.trained()) == 2 * 4 + 4
    assert resumed.guards.of(0).seen > 0
    assert equal(resumed.guards.untrained(), whole.guards.untrained())
    checkpoint = torch.load(tmp_path / "stopped.ckpt", weights_only=True)
    kept = [name for name in checkpoint["state_dict"] if name.startswith("guards.")]
    assert len(kept) == 2 * 4 + 4


def test_every_figure_names_the_defence(fitted):
    _, folder = fitted
    results = read_results(folder / "results.jsonl")
    assert {result.defence for result in results} == {"narrow(16,1)"}
    assert {result.key.defence for result in results} == {"narrow(16,1)"}


def test_what_a_defence_has_trained_is_exported(fitted, tmp_path):
    whole, _ = fitted
    whole.export(tmp_path)
    written = load_file(tmp_path / "defence.safetensors")
    assert equal(written, whole.guards.state_dict())
    module_without = module(tmp_path / "other")
    module_without.guards.export(tmp_path / "none.safetensors")
    assert not (tmp_path / "none.safetensors").exists()


def test_naming_no_defence_is_as_naming_none(tmp_path):
    ends = [
        fit(tmp_path / str(place), model=defended(tmp_path, SplitLearning(), each), max_steps=2)
        for place, each in enumerate([NoDefence(), GaussianNoise(0.0)])
    ]
    plain = fit(tmp_path / "plain", model=module(tmp_path, paradigm=SplitLearning()), max_steps=2)
    for end in ends:
        assert equal(end.trained(), plain.trained())
    assert ends[0].channel == plain.channel
    module(tmp_path, paradigm=Centralized(), defence=NoDefence())


def test_a_fit_does_not_go_on_under_another_defence(fitted, tmp_path):
    class Save(L.Callback):
        def on_train_epoch_end(self, trainer, *_):
            trainer.save_checkpoint(tmp_path / "one.ckpt")

    noisy = defended(tmp_path, SplitLearning(), GaussianNoise(0.1))
    fit(tmp_path, Save(), model=noisy, max_epochs=1)
    other = defended(tmp_path, SplitLearning(), GaussianNoise(0.2))
    with pytest.raises(CheckpointError, match=r"with the defence noise\(0.1\), this is noise\(0"):
        fit(tmp_path, ckpt_path=tmp_path / "one.ckpt", model=other)


def test_kept_tokens_are_those_that_cross(tmp_path):
    model = defended(tmp_path, SplitLearning(), Withdraw())
    trainer(tmp_path, limit_val_batches=1).validate(model, datamodule=Noise(seed=3))
    kept = {r.name: r.value for r in read_results(tmp_path / "results.jsonl")}
    assert kept["kept_tokens"] == 0


@pytest.mark.parametrize(
    ("paradigm", "defence", "message"),
    [
        (Centralized(), GaussianNoise(0.1), "Centralized has no cut"),
        (SplitLearning(), Mean(), "mean needs 2 clients"),
    ],
)
def test_what_cannot_fit_is_refused_before_weights_load(tmp_path, paradigm, defence, message):
    with pytest.raises(ConfigError, match=message):
        module(tmp_path, paradigm=paradigm, defence=defence)


def test_too_small_a_batch_is_refused_before_weights_load(tmp_path):
    defence = Narrow()
    defence.needs = type(defence.needs)(batch_size=5)
    own = defended(tmp_path, SplitLearning(), defence, micro_batch_size=2)
    with pytest.raises(ConfigError, match=r"needs 5 samples of a client at a time, there are 2"):
        fit(tmp_path, model=own)
    assert not hasattr(own, "model")
