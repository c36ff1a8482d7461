"""A probe on two processes: items are shared out, and what becomes of them is known to both."""

import multiprocessing
import os
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import torch.distributed as dist

from callbacks.probes.probe import Probe, ProbeError, Visit
from qpriv.result import Result, read_results

from ..toys import Toy, ToyData

PATIENCE, PAUSE = 3.0, 8.0
"""Seconds after which the training's own group gives up, and that the slow item takes."""


class Shared(Probe):
    """Five items: one slow, one that fails, each with a random figure."""

    name: ClassVar[str] = "shared"

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        return [[f"item={number}" for number in range(5)], ["sum"]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        if item == "item=2" and dist.is_initialized():
            time.sleep(PAUSE)
        if item == "item=3" and self.seed == 1:
            raise ValueError("no luck")
        return [Result(name=f"attack/shared/{item}", value=float(torch.rand(1)), n=1)]


def measured(probe: Probe, folder: Path) -> list[Result]:
    return probe.run_once(Toy(), ToyData(), folder, epoch=0)


def rank(number: int, port: int, folder: Path) -> None:
    """Measure twice in one of two processes, and leave what this rank has seen."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=number, world_size=2, timeout=timedelta(seconds=PATIENCE))
    good, bad = (measured(Shared(seed=seed), folder) for seed in (0, 1))
    with_stop = Shared(seed=1, on_error="stop")
    try:
        measured(with_stop, folder / "stopped")
    except ProbeError as error:
        torch.save(
            {"good": values(good), "bad": values(bad), "stop": str(error)}, folder / f"{number}"
        )
    dist.barrier()  # the training's own group is as it was
    dist.destroy_process_group()


def values(results: Sequence[Result]) -> list[tuple[str, float | None, str, str]]:
    return [(r.name, r.value, r.status, r.note) for r in results]


@pytest.mark.slow
def test_items_are_shared_and_results_and_errors_are_known_to_all(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    ranks = [context.Process(target=rank, args=(number, port, tmp_path)) for number in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60 + PATIENCE + PAUSE)
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
    assert codes == [0, 0], "a rank failed or hung"
    one, other = (torch.load(tmp_path / str(number)) for number in range(2))
    assert one == other
    assert one["good"] == values(measured(Shared(), tmp_path / "alone"))
    assert [name for name, *_ in one["good"]][-1] == "attack/shared/sum"
    assert ("attack/shared", None, "failed", "item=3: ValueError: no luck") in one["bad"]
    assert "no luck" in one["stop"]
    assert len(read_results(tmp_path / "results.jsonl")) == 6 + 5  # of the first rank alone
