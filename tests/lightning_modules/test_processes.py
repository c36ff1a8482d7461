"""Two processes on CPUs (gloo): the same weights as one, and nothing hangs."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from lightning.pytorch.strategies import DDPStrategy

from lightning_modules import VQAModule
from qpriv.errors import ConfigError
from qpriv.paradigms import Centralized, Federated, Paradigm, SplitLearning
from tests.lightning_modules.test_image_ledger import Paired, PairedVQA, policy
from tests.lightning_modules.test_vqa import module
from tests.tiny_data import Noise
from tests.tiny_models import build_random_backbone

TIMEOUT = 120
BATCH = 4


@dataclass(eq=False, repr=False, kw_only=True)
class Twelve(Noise):
    """Twelve samples, so that every process has as many."""

    size: int = 12


def fit_once(
    paradigm: Paradigm, processes: int, batch_size: int, folder: Path, **settings: Any
) -> VQAModule:
    """Fit in this process and, with several, in others like it; return what was trained."""
    model = VQAModule(
        backbone=str(folder / "backbone"),
        paradigm=paradigm,
        feature_cache=None,
        rank=2,
        alpha=4.0,
        learning_rate=1e-2,
        seed=3,
        policy=settings.pop("policy", None),
    )
    strategy = (
        "auto"
        if processes == 1
        else DDPStrategy(process_group_backend="gloo", timeout=timedelta(seconds=TIMEOUT))
    )
    trainer = L.Trainer(
        accelerator="cpu",
        devices=processes,
        strategy=strategy,
        max_epochs=1,
        limit_val_batches=settings.pop("limit_val_batches", 0),
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    data = settings.pop("data", Twelve)(seed=3, batch_size=batch_size)
    trainer.fit(model, datamodule=data)
    return model


def weights(model: VQAModule) -> dict[str, torch.Tensor]:
    """Return the trained weights."""
    return {name: value.detach().clone() for name, value in model.trained().items()}


def remembering(folder: Path, processes: int) -> dict[str, Any]:
    """Fit with a policy that remembers images, seven questions a split so that ranks differ."""
    given = {"policy": policy(mask="first_question"), "limit_val_batches": 1.0, "data": Uneven}
    model = fit_once(Centralized(), processes, BATCH // processes, folder, **given)
    assert model.policy.ledger is not None
    return {"ledger": model.policy.ledger.get_extra_state(), **weights(model)}


@dataclass(eq=False, repr=False, kw_only=True)
class Uneven(Paired):
    """Two questions about each image; in evaluation one process has a batch more than the other."""

    size: int = 10
    eval_batch_size: int = 1

    def dataset(self, split: str) -> PairedVQA:
        return PairedVQA(split, self.size - 3 * (split == "val"))


def paradigms() -> dict[Paradigm, int]:
    """Return what is fit on two processes, and the batch that each of them reads."""
    # a process takes half of the centralised batch; federated clients take their own rows of it
    return {Centralized(): BATCH // 2, Federated(num_clients=3, local_steps=2): BATCH}


def fit_as(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    for paradigm, size in paradigms().items():
        trained = weights(fit_once(paradigm, 2, size, folder))
        torch.save(trained, folder / f"{paradigm.label}{rank}.pt")
    torch.save(remembering(folder, 2), folder / f"remembering{rank}.pt")


@pytest.fixture
def two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Fit on this process and one more; yield the folder of what each has learned."""
    build_random_backbone(tmp_path / "backbone")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
    # as a launcher would: Lightning then joins the processes instead of starting its own
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("NODE_RANK", "0"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOCAL_RANK", "1")
    other = multiprocessing.get_context("spawn").Process(target=fit_as, args=(1, tmp_path))
    other.start()
    monkeypatch.setenv("LOCAL_RANK", "0")
    threads = torch.get_num_threads()
    try:
        fit_as(0, tmp_path)
        other.join(TIMEOUT)
        assert other.exitcode == 0, "the other process failed or hung"
    finally:
        other.kill()
        if dist.is_initialized():
            dist.destroy_process_group()
        torch.set_num_threads(threads)
        monkeypatch.undo()
    yield tmp_path


@pytest.mark.slow
def test_two_processes_end_with_the_weights_of_one(two_processes: Path) -> None:
    for paradigm in paradigms():
        one, other = (torch.load(two_processes / f"{paradigm.label}{rank}.pt") for rank in range(2))
        alone = weights(fit_once(paradigm, 1, BATCH, two_processes))
        assert one.keys() == other.keys() == alone.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
        for name in alone:
            if paradigm.clients_on_ranks:
                assert torch.equal(one[name], alone[name])
            else:
                torch.testing.assert_close(one[name], alone[name], rtol=2e-3, atol=2e-4)

    # what has crossed of an image is what crosses where one process asks all questions
    one, other = (torch.load(two_processes / f"remembering{rank}.pt") for rank in range(2))
    alone = remembering(two_processes, 1)
    assert one.pop("ledger") == other.pop("ledger") == (known := alone.pop("ledger"))
    assert len(known) == 5 + 3  # images of training and of validation
    assert all(torch.equal(one[name], other[name]) for name in one)
    for name in alone:
        torch.testing.assert_close(one[name], alone[name], rtol=2e-3, atol=2e-4)


def test_clients_that_take_turns_refuse_a_second_process(tmp_path: Path, monkeypatch) -> None:
    split = module(tmp_path, paradigm=SplitLearning())
    fake = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    monkeypatch.setattr(type(fake), "world_size", 2)
    split.trainer = fake
    with pytest.raises(ConfigError, match="SplitLearning on 2 processes"):
        split.setup("fit")
