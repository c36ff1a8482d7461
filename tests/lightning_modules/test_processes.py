"""Two processes on CPUs (gloo): the same weights as one, and nothing hangs."""

import os
import socket
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import lightning as L
import pytest
import torch
import torch.multiprocessing as multiprocessing
from lightning.pytorch.strategies import DDPStrategy

from lightning_modules import VQAModule
from qpriv.errors import ConfigError
from qpriv.paradigms import Centralized, Federated, Paradigm, SplitLearning
from tests.lightning_modules.test_vqa import module
from tests.tiny_data import Noise
from tests.tiny_models import build_random_backbone

TIMEOUT = 240


@dataclass(eq=False, repr=False, kw_only=True)
class Twelve(Noise):
    """Twelve samples, so that every process has as many."""

    size: int = 12


def fit_once(
    paradigm: Paradigm, processes: int, batch_size: int, folder: Path
) -> dict[str, torch.Tensor]:
    """Fit in this process and, with several, in others like it; return the trained weights."""
    model = VQAModule(
        backbone=str(folder / "backbone"),
        paradigm=paradigm,
        feature_cache=None,
        rank=2,
        alpha=4.0,
        learning_rate=1e-2,
        seed=3,
    )
    strategy = "auto" if processes == 1 else DDPStrategy(process_group_backend="gloo")
    trainer = L.Trainer(
        accelerator="cpu",
        devices=processes,
        strategy=strategy,
        max_epochs=1,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(model, datamodule=Twelve(seed=3, batch_size=batch_size))
    return {name: value.detach().clone() for name, value in model.trained().items()}


def worker(rank: int, paradigm: Paradigm, folder: Path, batch_size: int) -> None:
    torch.set_num_threads(1)
    # as a launcher would: Lightning then joins the processes instead of starting its own
    os.environ |= {"LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": "2"}
    torch.save(fit_once(paradigm, 2, batch_size, folder), folder / f"rank{rank}.pt")


def fit_twice(paradigm: Paradigm, folder: Path, batch_size: int) -> list[dict[str, torch.Tensor]]:
    context = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    start = partial(context.Process, target=worker)
    processes = [start(args=(rank, paradigm, folder, batch_size)) for rank in range(2)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(TIMEOUT)
        assert [process.exitcode for process in processes] == [0, 0], "a process failed or hung"
    finally:
        for process in processes:
            process.kill()
        del os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("paradigm", [Centralized(), Federated(num_clients=3, local_steps=2)])
def test_two_processes_end_with_the_weights_of_one(paradigm: Paradigm, tmp_path: Path) -> None:
    build_random_backbone(tmp_path / "backbone")
    # a process of two takes half of the centralised batch; federated clients take their own rows
    share = 4 if paradigm.clients_on_ranks else 2
    one, other = fit_twice(paradigm, tmp_path, batch_size=share)
    alone = fit_once(paradigm, 1, 4, tmp_path)
    assert one.keys() == other.keys() == alone.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    for name in alone:
        if paradigm.clients_on_ranks:
            assert torch.equal(one[name], alone[name])
        else:
            torch.testing.assert_close(one[name], alone[name], rtol=2e-3, atol=2e-4)


def test_clients_that_take_turns_refuse_a_second_process(tmp_path: Path, monkeypatch) -> None:
    split = module(tmp_path, paradigm=SplitLearning())
    fake = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    monkeypatch.setattr(type(fake), "world_size", 2)
    split.trainer = fake
    with pytest.raises(ConfigError, match="SplitLearning on 2 processes"):
        split.setup("fit")
