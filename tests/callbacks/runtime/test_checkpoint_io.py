import errno

import pytest
import torch

from callbacks.runtime.checkpoint_io import AtomicCheckpointIO, previous_of
from qpriv.errors import CheckpointError

io = AtomicCheckpointIO()


def test_what_is_saved_is_loaded_and_the_one_before_is_kept(tmp_path):
    path = tmp_path / "checkpoints" / "last.ckpt"
    io.save_checkpoint({"step": 1, "weights": torch.ones(2)}, path)
    io.save_checkpoint({"step": 2, "weights": torch.zeros(2)}, path)
    assert io.load_checkpoint(path)["step"] == 2
    assert io.load_checkpoint(previous_of(path))["step"] == 1
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "last.ckpt",
        "last.previous.ckpt",
    ]
    io.remove_checkpoint(path)
    assert not list(path.parent.iterdir())


def test_a_torn_checkpoint_gives_way_to_the_one_before(tmp_path, caplog):
    path = tmp_path / "last.ckpt"
    for step in (1, 2):
        io.save_checkpoint({"step": step}, path)
    path.unlink()
    path.write_bytes(b"PK\x03\x04 half a checkpoint")
    assert io.load_checkpoint(path)["step"] == 1
    assert "going on from the one before" in caplog.text
    previous_of(path).unlink()
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        io.load_checkpoint(path)


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "last.ckpt"
    io.save_checkpoint({"step": 1}, path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(CheckpointError, match="No space left"):
        io.save_checkpoint({"step": 2}, path)
    monkeypatch.undo()
    assert io.load_checkpoint(path)["step"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


def test_nothing_but_plain_values_is_unpickled(tmp_path):
    path = tmp_path / "foreign.ckpt"
    torch.save({"hook": print}, path)
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        io.load_checkpoint(path)


def test_addresses_are_refused():
    with pytest.raises(CheckpointError, match="from disk only"):
        io.load_checkpoint("https://example.org/last.ckpt")


def test_missing_checkpoint_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"gone\.ckpt"):
        io.load_checkpoint(tmp_path / "gone.ckpt")
