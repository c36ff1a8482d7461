"""What becomes of probes that are stopped, late, or two of a kind."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException

from qpriv.paradigms import SplitLearning
from qpriv.result import read_results

from ..toys import Doing, Toy, ToyData, fit


def test_sigterm_stops_a_probe_at_once_and_is_the_trainers_again_afterwards(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def wait(module: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    began = time.monotonic()
    with pytest.raises(SIGTERMException):
        fit(tmp_path, [Doing(wait, on_error="warn")])
    assert time.monotonic() - began < 30
    assert signal.getsignal(signal.SIGTERM) == before
    assert not (tmp_path / "results.jsonl").exists()


def test_ctrl_c_stops_a_probe_at_once(tmp_path: Path) -> None:
    # a shell starts what runs in the background deaf to Ctrl-C, these tests too
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(module: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)

    began = time.monotonic()
    try:
        with pytest.raises(SystemExit):
            fit(tmp_path, [Doing(press)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 30


def test_a_figure_that_took_longer_than_its_budget_says_so(tmp_path: Path) -> None:
    in_time, late = Doing(lambda _: None), Doing(lambda _: time.sleep(0.05), max_seconds=0.01)
    fit(tmp_path / "in time", [in_time], epochs=1)
    fit(tmp_path / "late", [late], epochs=1)
    notes = [read_results(tmp_path / n / "results.jsonl")[0].note for n in ("in time", "late")]
    assert notes == ["", "over its budget of 0.01 s"]


def test_two_probes_of_a_class_keep_figures_metrics_and_ledgers_apart(tmp_path: Path) -> None:
    probes = [Doing(lambda _: None, seed=seed) for seed in (1, 2)]
    saved = ModelCheckpoint(tmp_path / "kept", filename="last", monitor="attack/doing/done/seed=2")
    fit(tmp_path, [*probes, saved], enable_checkpointing=True)
    results = read_results(tmp_path / "results.jsonl")
    assert [(r.epoch, r.setting["seed"]) for r in results] == [
        (epoch, seed) for epoch in (0, 1) for seed in (1, 2)
    ]
    assert saved.best_model_score == 1.0
    stored = torch.load(tmp_path / "kept" / "last.ckpt", weights_only=True)["callbacks"]
    assert [stored[probe.state_key]["epochs_done"] for probe in probes] == [[0], [0]]


def test_every_figure_of_a_probe_says_under_which_paradigm_it_was_measured(tmp_path: Path) -> None:
    module = Toy()
    paradigm = SplitLearning(cut=4, codec="int8")
    paradigm.place(8)
    module.channel = paradigm.channel()

    def fail(module: object) -> None:
        raise ValueError("no luck")

    for seed, deed in enumerate((lambda module: None, fail)):
        Doing(deed, seed=seed).run_once(module, ToyData(), tmp_path, 3)
    figures = read_results(tmp_path / "results.jsonl")
    assert [figure.status for figure in figures] == ["ok", "failed"]
    assert {(figure.paradigm, figure.channel, figure.epoch) for figure in figures} == {
        ("split", "up@4/int8", 3)
    }
