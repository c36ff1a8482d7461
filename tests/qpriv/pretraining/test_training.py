import pytest
import torch
from torch import nn

from qpriv.pretraining.training import train


def run(checkpoint, steps=12, stop_after=None):
    torch.manual_seed(0)
    modules = nn.ModuleDict({"line": nn.Linear(3, 1)})
    seen = []

    def loss(rng):
        if stop_after is not None and len(seen) == stop_after:
            raise KeyboardInterrupt
        inputs = torch.from_numpy(rng.normal(size=(4, 3))).float()
        seen.append(inputs)
        return (modules["line"](inputs) - inputs.sum(1, keepdim=True)).square().mean()

    train("line", modules, loss, steps=steps, seed=1, checkpoint=checkpoint, save_every=5)
    return modules["line"].weight, len(seen)


def test_interrupted_training_ends_as_one_in_a_piece(tmp_path):
    whole, _ = run(tmp_path / "whole.ckpt")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped.ckpt", stop_after=7)
    resumed, steps = run(tmp_path / "stopped.ckpt")
    assert steps == 7  # five of twelve were saved
    assert torch.equal(whole, resumed)


def test_a_finished_run_repeats_nothing(tmp_path):
    first, _ = run(tmp_path / "line.ckpt")
    again, steps = run(tmp_path / "line.ckpt")
    assert steps == 0
    assert torch.equal(first, again)
