"""What is written is whole or absent, and two processes never write to one folder."""

import errno
import os
import signal
import subprocess
import sys

import pytest
from filelock import FileLock

from qpriv import io as writing
from qpriv.errors import ConfigError
from qpriv.io import append_lines, atomic_open, lock_dir, write_atomic
from tests.held import held_by_another


def test_what_fails_half_way_leaves_what_was_there(tmp_path):
    path = tmp_path / "new" / "figures.json"
    write_atomic(path, b"first")
    with pytest.raises(OSError, match="No space"), atomic_open(path) as file:
        file.write(b"sec")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert path.read_bytes() == b"first"
    assert [file.name for file in path.parent.iterdir()] == ["figures.json"]
    write_atomic(path, b"second")
    assert path.read_bytes() == b"second"


def test_the_rest_of_a_dead_process_s_line_is_taken_out(tmp_path):
    path = tmp_path / "new" / "results.jsonl"
    append_lines(path, [b"1", b"2"])
    with path.open("ab") as file:
        file.write(b"a torn li")
    append_lines(path, [])
    assert path.read_bytes() == b"1\n2\n"
    path.write_bytes(b"all of it is torn")
    append_lines(path, [b"3"])
    assert path.read_bytes() == b"3\n"


def test_a_folder_is_held_until_its_process_is_killed(tmp_path):
    folder = tmp_path / "run"
    with held_by_another(folder) as process:
        with pytest.raises(ConfigError, match=f"process {process} is at work in this folder"):
            lock_dir(folder)
    lock_dir(folder)
    lock_dir(folder)  # it is this process's own by now
    assert (folder / writing.OWNER).read_text() == str(os.getpid())


def test_a_process_may_work_where_the_one_that_started_it_does(tmp_path):
    lock_dir(tmp_path)
    with held_by_another(tmp_path) as process:
        assert process != os.getpid()
        assert (tmp_path / writing.OWNER).read_text() == str(
            os.getpid()
        )  # it stays the first one's


_FORKED = """
import os, sys, time
from pathlib import Path
from qpriv.io import lock_dir
lock_dir(Path(sys.argv[1]))
if not os.fork():
    print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process is forked here")
def test_a_forked_process_does_not_keep_the_folder_of_a_killed_one(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", _FORKED, tmp_path], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        holder.kill()
        holder.wait()
        lock_dir(tmp_path)
        os.kill(child, signal.SIGKILL)


def test_a_disk_without_locks_is_told_of(tmp_path, monkeypatch, caplog):
    def without(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(FileLock, "acquire", without)
    lock_dir(tmp_path / "run")
    assert "run one process there" in caplog.text
