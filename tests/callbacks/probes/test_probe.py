import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import lightning as L
import numpy as np
import pytest
import torch

from callbacks import ForaProbe, MembershipProbe, SensitivityProbe
from callbacks.probes.isolation import IsolationError, fingerprint, isolated
from callbacks.probes.probe import Probe, ProbeError, Visit
from qpriv.errors import ConfigError
from qpriv.result import Result, read_results

from ..victims import TinyData, TinyVictim, fit


class Vandal(Probe):
    """Does all a careless attack would do to its victim."""

    name: ClassVar[str] = "vandal"

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        return [["wreck", "count"]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        module = visit.module
        random.random(), np.random.rand(), torch.rand(3)
        torch.nn.Linear(4, 4)
        module.train()
        module.requires_grad_(True)
        batch = module.preprocessor(visit.data.members()[:2])
        module.loss(batch).backward()
        for parameter in module.parameters():
            if "lora" in str(parameter.shape) or (parameter.ndim == 2 and parameter.shape[0] == 4):
                parameter.data.add_(1.0)
        module.norm.running_mean.fill_(5.0)
        module.norm.register_forward_pre_hook(lambda m, args: (args[0] * 0,))
        return [Result(name=f"attack/vandal/{item}", value=1.0, n=1)]


class Broken(Vandal):
    """Succeeds with one item and fails with the other."""

    name: ClassVar[str] = "broken"

    def measure(self, item: str, visit: Visit) -> list[Result]:
        super().measure(item, visit)
        if item == "count":
            raise ValueError("no luck")
        return [Result(name="attack/broken/wreck", value=2.0, n=1)]


class Counter(Probe):
    """Counts how often it really measures."""

    name: ClassVar[str] = "counter"

    def __init__(self, every_n_epochs: int = 1, **settings: Any) -> None:
        super().__init__(every_n_epochs=every_n_epochs, **settings)
        self._epochs: list[int] = []

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        return [["one"]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        self._epochs.append(visit.epoch)
        return [Result(name="attack/counter/epoch", value=float(visit.epoch), n=1)]


PROBES = {
    "vandal": lambda: Vandal(),
    "broken": lambda: Broken(),
    "sensitivity": lambda: SensitivityProbe(log_private=True, audit_isolation=True),
    "supervised": lambda: ForaProbe(
        client="supervised", steps=2, batch_size=4, log_private=True, audit_isolation=True
    ),
    "fora": lambda: ForaProbe(steps=2, alignment_steps=2, batch_size=4),
    "membership": lambda: MembershipProbe(
        shadows=2, query_policy=("same", "off"), audit_isolation=True
    ),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    return fit(tmp_path_factory.mktemp("plain"), [])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "membership" else name
        for name in PROBES
    ],
)
def test_training_with_a_probe_ends_in_bit_equal_weights(
    name: str, plain: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    probed = fit(tmp_path, [PROBES[name]()])
    different = [key for key in plain if not torch.equal(plain[key], probed[key])]
    assert different == []
    results = read_results(tmp_path / "results.jsonl")
    assert {result.epoch for result in results} == {0, 1}
    failed = {result.note for result in results if result.status == "failed"}
    assert failed == ({"count: ValueError: no luck"} if name == "broken" else set())


def test_vandal_does_change_the_victim_without_isolation() -> None:
    module = TinyVictim()
    before = fingerprint(module)
    visit = Visit(module, TinyData(), 0, Path(), Path())
    Vandal().measure("wreck", visit)
    after = fingerprint(module)
    assert {"torch random state", "buffer norm.running_mean", "module norm"} <= {
        key for key in before if after[key] != before[key]
    }


def test_isolation_undoes_everything_and_the_audit_sees_what_it_cannot_undo() -> None:
    module = TinyVictim().train()
    module.norm.weight.grad = torch.ones(1)
    with isolated(module, seed=1, audit=True):
        Vandal().measure("wreck", Visit(module, TinyData(), 0, Path(), Path()))
    with pytest.raises(IsolationError, match="lm_head"), isolated(module, seed=1, audit=True):
        module.model.lm_head.weight.data.add_(1.0)  # a frozen weight: no copy is kept of it


def test_random_numbers_inside_depend_on_the_seed_alone() -> None:
    module = torch.nn.Linear(1, 1)
    draws = []
    for seed in (3, 3, 4):
        torch.rand(5)
        with isolated(module, seed=seed):
            draws.append((random.random(), np.random.rand(), float(torch.rand(1))))
    assert draws[0] == draws[1] != draws[2]


def test_gradients_flow_inside_inference_mode() -> None:
    module = torch.nn.Linear(2, 1)
    with torch.inference_mode(), isolated(module, seed=0):
        inputs = torch.randn(1, 2, requires_grad=True)
        module(inputs).sum().backward()
        assert inputs.grad is not None


def test_failure_stops_the_run_where_it_is_told_to(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="no luck"):
        fit(tmp_path, [Broken(on_error="stop")])


def test_runs_after_every_nth_and_the_last_epoch_but_not_in_the_sanity_check(
    tmp_path: Path,
) -> None:
    probe = Counter(every_n_epochs=2)
    fit(tmp_path, [probe], epochs=5)
    assert probe._epochs == [1, 3, 4]


def test_a_probe_tells_its_share_of_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("callbacks.probes.probe.rank_zero_info", said.append)
    fit(tmp_path, [Counter()])
    told = [line for line in said if "of the epoch so far" in line]
    assert len(told) == 2
    for line in told:
        assert 0 <= int(line.split("s (")[1].split("%")[0]) < 100
    Counter().run_once(TinyVictim(), TinyData(), tmp_path / "alone", 0)
    assert "epoch so far" not in said[-1]


def test_runs_once_an_epoch_whatever_the_validation_does(tmp_path: Path) -> None:
    often, never = Counter(), Counter()
    fit(tmp_path / "often", [often], val_check_interval=0.5)
    fit(tmp_path / "never", [never], limit_val_batches=0)
    assert often._epochs == never._epochs == [0, 1]


def test_finished_items_are_not_measured_twice_after_a_kill(tmp_path: Path) -> None:
    module, data = TinyVictim(), TinyData()
    first, again = Counter(), Counter()
    assert first.run_once(module, data, tmp_path, 0) == again.run_once(module, data, tmp_path, 0)
    assert again._epochs == []
    assert len(read_results(tmp_path / "results.jsonl")) == 1
    with torch.no_grad():
        next(p for p in module.parameters() if p.requires_grad).add_(1)
    again.run_once(module, data, tmp_path, 0)  # other weights: nothing is known of them
    assert again._epochs == [0]


def test_catches_up_an_epoch_that_was_trained_but_not_measured(tmp_path: Path) -> None:
    ledger = Counter()
    ledger.load_state_dict({"epochs_done": [0]})
    trainer = L.Trainer(default_root_dir=tmp_path, logger=False, max_epochs=4, accelerator="cpu")
    trainer.fit_loop.epoch_progress.current.processed = 2
    trainer.fit_loop.epoch_progress.current.completed = 2
    trainer.datamodule = TinyData()
    module = TinyVictim()
    module.log_dict = lambda *args, **kwargs: None  # type: ignore[method-assign]
    ledger.on_train_start(trainer, module)
    assert ledger._epochs == [1]
    assert ledger.state_dict() == {"epochs_done": [0, 1]}


def test_two_probes_of_one_class_keep_apart_and_metrics_are_logged(tmp_path: Path) -> None:
    one, two = Counter(seed=1), Counter(seed=2)
    assert one.state_key != two.state_key
    assert Counter(seed=1).state_key == one.state_key

    class Watch(L.Callback):
        seen: ClassVar[dict[str, float]] = {}

        def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
            self.seen.update({k: float(v) for k, v in trainer.callback_metrics.items()})

    fit(tmp_path, [one, Watch()])
    assert Watch.seen["attack/counter/epoch"] == 1.0


def test_module_or_data_that_cannot_be_attacked_is_refused_before_training(
    tmp_path: Path,
) -> None:
    trainer = L.Trainer(default_root_dir=tmp_path, logger=False)
    with pytest.raises(ConfigError, match="no model, encode, policy"):
        Counter().on_fit_start(trainer, L.LightningModule())
    trainer.datamodule = L.LightningDataModule()
    with pytest.raises(ConfigError, match="members, nonmembers"):
        Counter().on_fit_start(trainer, TinyVictim())


@pytest.mark.parametrize("wrong", [{"every_n_epochs": 0}, {"max_samples": 0}, {"max_seconds": 0}])
def test_impossible_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        SensitivityProbe(**wrong)  # type: ignore[arg-type]
